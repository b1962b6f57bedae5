#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_PROVED_PAIR_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_PROVED_PAIR_H_

#include <chrono>

#include "brigade/collectives/engines/gloo/gloo_release.h"
#include "brigade/collectives/internal/socket.h"
#include "gloo/transport/tcp/context.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/pair.h"

namespace brigade::collectives::internal {

// A pair of Gloo that neither listens nor connects: it adopts a connection that was made and proved
// outside of Gloo (peer_sockets.h). What Gloo's thread throws becomes an error of the pair, and
// does not end the process.
//
// Threads      As Gloo's: events come from the device's thread.
class ProvedPair final : public ::gloo::transport::tcp::Pair {
 public:
  // In the device's thread, where no event can meet a pair that is not yet made as a whole.
  ProvedPair(::gloo::transport::tcp::Context* context, ::gloo::transport::tcp::Device* device,
             int rank, std::chrono::milliseconds timeout);
  ~ProvedPair() override;

  // Once. Throws what Gloo throws, as where the peer is gone; then the connection is closed.
  void Adopt(Socket socket);

  void handleEvents(int events) override;
};

// Of proved pairs.
class ProvedContext final : public ::gloo::transport::tcp::Context {
 public:
  using Context::Context;

  // With all other ranks. Throws what Gloo throws.
  void CreatePairs();

  ProvedPair& pair(int rank) { return static_cast<ProvedPair&>(*getPair(rank)); }
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_PROVED_PAIR_H_
