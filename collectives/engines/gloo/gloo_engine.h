#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_ENGINE_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

// One rank of a group of processes that Gloo connects; returns when all are there. Contracts and errors:
// gloo_transport.h and transport/transport_engine.h.
//
// Shrink       Ranks that lose the one that serves the store, rank 0 at first, move to the server of the lowest rank that
//              is left. If the lost one is alive, or some ranks were not told of its loss, these look for later groups
//              on the old server: a group with ranks of both kinds ends in DeadlineExceeded that names those that did
//              not join. Calls of older groups need no store.
absl::StatusOr<std::unique_ptr<Engine>> CreateGlooEngine(const GlooOptions& options,
                                                         device::Context& context);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_ENGINE_H_
