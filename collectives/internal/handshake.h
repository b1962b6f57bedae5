#ifndef BRIGADE_COLLECTIVES_INTERNAL_HANDSHAKE_H_
#define BRIGADE_COLLECTIVES_INTERNAL_HANDSHAKE_H_

// How both ends of a connection prove to each other that they know the job's secret, before either
// says anything else. Frames of at most kMostUnprovedBytes; S is JobSecret::Sign:
//
//   client   kProtocol, c, S("knock", r, c)           c and s: new nonces; r: rank of the server
//   server   s, S("server", r, c, s)
//   client   S("client", r, c, s)
//
// Who does not know the secret hears nothing. Who repeats the first frame of another connection
// hears the second, and cannot make the third. What is meant for one server no other one takes.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {

inline constexpr absl::string_view kProtocol = "brigade 2";
// Of a frame, until the other end has proved what it knows.
inline constexpr uint32_t kMostUnprovedBytes = 256;
inline constexpr absl::Duration kHandshakeTimeout = absl::Seconds(5);

// The server's end of one connection, as its frames come.
class ServerHandshake {
 public:
  ServerHandshake(const JobSecret& secret, int rank) : secret_(secret), rank_(rank) {}

  // The frame to answer with, "" for none. PermissionDenied: the other end is a stranger.
  absl::StatusOr<std::string> Hear(absl::string_view frame);
  bool is_proved() const { return step_ == 2; }

 private:
  const JobSecret secret_;
  const int rank_;
  int step_ = 0;
  std::string client_nonce_, server_nonce_;
};

// The client's end of one connection to the server of rank `rank`.
class ClientHandshake {
 public:
  ClientHandshake(const JobSecret& secret, int rank)
      : secret_(secret), rank_(rank), client_nonce_(Nonce()) {}

  // The frame to begin with.
  std::string Knock() const;
  // The frame to answer what the server says with, which ends the handshake. PermissionDenied: the
  // server cannot prove what it knows.
  absl::StatusOr<std::string> Hear(absl::string_view frame) const;

 private:
  const JobSecret secret_;
  const int rank_;
  const std::string client_nonce_;
};

// The client's end, at once, of a connection to the server of rank `rank`. Unavailable if the
// connection ends or nothing comes before the deadline or kHandshakeTimeout, as where the server
// knows another secret; PermissionDenied if the server cannot prove what it knows.
absl::Status ProveToServer(const JobSecret& secret, int rank, Socket& socket,
                           device::SteadyTime deadline);

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_INTERNAL_HANDSHAKE_H_
