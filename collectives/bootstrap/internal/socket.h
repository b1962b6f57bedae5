#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_SOCKET_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_SOCKET_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace brigade::collectives::internal {

// A TCP socket that carries frames: a length of 4 bytes, then as many bytes. Never raises SIGPIPE.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), received_(std::move(other.received_)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  // On all addresses of this host, IPv6 and IPv4; port 0 takes a free one. AlreadyExists if the
  // port is in use.
  static absl::StatusOr<Socket> Listen(int port);

  // One attempt. InvalidArgument if there is no such host, Unavailable if it does not answer.
  static absl::StatusOr<Socket> Connect(const std::string& host, int port, absl::Time deadline);

  absl::StatusOr<Socket> Accept();

  // Unavailable if the other side is gone; DeadlineExceeded.
  absl::Status SendFrame(absl::string_view payload, absl::Time deadline);
  absl::StatusOr<std::string> ReceiveFrame(absl::Time deadline);

  // Appends what has come to `data` without waiting; an error at the end of the connection.
  absl::Status Receive(std::string& data);

  // Takes the first whole frame off `data`; false if there is none. InvalidArgument for a length
  // that no frame of ours has.
  static absl::StatusOr<bool> TakeFrame(std::string& data, std::string& payload);

  void Close();
  int fd() const { return fd_; }
  int local_port() const;
  // For example "10.0.0.7" or "fe80::1".
  std::string local_host() const;
  // For example "10.0.0.7:1234" or "[fe80::1]:1234".
  std::string peer_address() const;

 private:
  // Waits until the socket is ready for `events` of poll(2).
  absl::Status WaitFor(short events, absl::Time deadline) const;

  int fd_ = -1;
  // What ReceiveFrame has read beyond the frames that it has returned.
  std::string received_;
};

// "host:port", with brackets around an IPv6 address.
std::string HostPort(const std::string& host, int port);

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_SOCKET_H_
