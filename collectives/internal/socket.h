#ifndef BRIGADE_COLLECTIVES_INTERNAL_SOCKET_H_
#define BRIGADE_COLLECTIVES_INTERNAL_SOCKET_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "brigade/collectives/internal/frame_buffer.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {

// Of a frame between ranks.
inline constexpr uint32_t kMostFrameBytes = 4 << 20;

// A TCP socket that carries frames (frame_buffer.h). Never raises SIGPIPE.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), received_(std::move(other.received_)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  // On the address of this name; on all of this host, IPv6 and IPv4, if the name is empty, leads to
  // another machine, as that of a proxy does, or is a host's that leads to its loopback, as in
  // Debian's /etc/hosts. Port 0 takes a free one. AlreadyExists if the port
  // is in use, InvalidArgument if there is no such host.
  static absl::StatusOr<Socket> Listen(const std::string& host, int port);

  // One attempt at each address of the host, which share the time. InvalidArgument if there is no
  // such host, Unavailable if it does not answer. How long a name is looked for is the system's.
  static absl::StatusOr<Socket> Connect(const std::string& host, int port,
                                        device::SteadyTime deadline);

  // ResourceExhausted if there are no descriptors left, or no memory for one; else Unavailable.
  absl::StatusOr<Socket> Accept();

  // Unavailable if the other side is gone; DeadlineExceeded.
  absl::Status Send(absl::string_view bytes, device::SteadyTime deadline);
  // As many bytes, of a connection without frames.
  absl::StatusOr<std::string> Receive(size_t bytes, device::SteadyTime deadline);

  // The same, and InvalidArgument for a frame of more than kMostFrameBytes, or `most`.
  absl::Status SendFrame(absl::string_view payload, device::SteadyTime deadline);
  absl::StatusOr<std::string> ReceiveFrame(device::SteadyTime deadline,
                                           uint32_t most = kMostFrameBytes);

  // Appends what has come, about `most` bytes of it, without waiting; an error at the end of the
  // connection.
  absl::Status Receive(FrameBuffer& data, size_t most);

  void Close();
  // The descriptor, which is the caller's from now on.
  int Release() { return std::exchange(fd_, -1); }
  int fd() const { return fd_; }
  int local_port() const;
  // For example "10.0.0.7" or "fe80::1".
  std::string local_host() const;
  // For example "10.0.0.7:1234" or "[fe80::1]:1234".
  std::string peer_address() const;

 private:
  // Waits until the socket is ready for `events` of poll(2).
  absl::Status WaitFor(short events, device::SteadyTime deadline) const;

  int fd_ = -1;
  // What ReceiveFrame has read beyond the frames that it has returned.
  FrameBuffer received_;
};

// Whether all who reach a host by this name are on this one.
bool IsLoopback(absl::string_view host);

// "host:port", with brackets around an IPv6 address.
std::string HostPort(const std::string& host, int port);

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_INTERNAL_SOCKET_H_
