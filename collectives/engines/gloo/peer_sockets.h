#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_SOCKETS_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_SOCKETS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/device/threads/steady_time.h"
#include "gloo/transport/tcp/attr.h"

namespace brigade::collectives::internal {

// Listens where Gloo's device is, at a free port. Unavailable.
absl::StatusOr<Socket> ListenForPeers(const ::gloo::transport::tcp::attr& device);

// Where `listener` is reached, as bytes for ConnectPeers of the others.
std::string AddressOf(const Socket& listener);

struct PeerConnections {
  // By rank, one with each of the others, on which nothing has been said that is meant for Gloo.
  std::vector<Socket> sockets;
  // Whether all others are connected with all too. Else the group is not whole, and those that take
  // it for whole are to be told so over these connections.
  absl::Status confirmed;
};

// Of this rank with all others. `secret` is known to the group alone; `addresses` are those of all
// ranks. `explain` makes of an error what all ranks say, before others see what comes of it.
//
// Protocol     The higher of two ranks connects. Both prove that they know the secret
//              (handshake.h); then the client says its rank, as a frame, and hears one byte when
//              the server has taken the connection. Who is connected with all says so to all by
//              one byte, and waits for theirs.
// Strangers    Hear nothing, hold one of kMostUnproved places for kHandshakeTimeout at most, and
//              are counted (stranger_log.h). Where all places are taken, or no descriptor is left,
//              the oldest makes room, those last that have made a right first frame. A rank whose
//              connection is closed before it was taken connects again.
// Threads      None but the caller's.
// Errors       DeadlineExceeded naming the ranks that did not connect; Unavailable naming those
//              that cannot be reached, and why.
absl::StatusOr<PeerConnections> ConnectPeers(
    const GlooOptions& options, const JobSecret& secret, Socket listener,
    const std::vector<std::string>& addresses, device::SteadyTime deadline,
    const std::function<absl::Status(const absl::Status& own)>& explain);

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_SOCKETS_H_
