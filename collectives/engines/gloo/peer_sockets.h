#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_SOCKETS_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_SOCKETS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/collectives/internal/socket.h"
#include "gloo/transport/tcp/attr.h"

namespace brigade::collectives::internal {

// Listens where Gloo's device is, at a free port. Unavailable.
absl::StatusOr<Socket> ListenForPeers(const ::gloo::transport::tcp::attr& device);

// Where `listener` is reached, as bytes for ConnectPeers of the others.
std::string AddressOf(const Socket& listener);

// By rank, a connection of this rank with each of the others, on which nothing has been said that
// is meant for Gloo. `secret` is known to the group alone; `addresses` are those of all ranks.
//
// Protocol     The higher of two ranks connects. Both prove that they know the secret
//              (handshake.h); then the client says its rank, as a frame, and hears one byte when
//              the server has taken the connection.
// Strangers    Hear nothing, hold one of kMostUnproved places for kHandshakeTimeout at most, and
//              are counted (stranger_log.h). Where all places are taken, or no descriptor is left,
//              the oldest makes room, those last that have made a right first frame. A rank whose
//              connection is closed before it was taken connects again.
// Threads      None but the caller's.
// Errors       DeadlineExceeded naming the ranks that did not connect; Unavailable naming those
//              that cannot be reached, and why.
absl::StatusOr<std::vector<Socket>> ConnectPeers(const GlooOptions& options,
                                                 const JobSecret& secret, Socket listener,
                                                 const std::vector<std::string>& addresses,
                                                 absl::Time deadline);

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_SOCKETS_H_
