#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_ENGINE_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

// One rank of a group of processes that Gloo connects; returns when all are there. Contracts and
// errors: gloo_transport.h and transport_engine.h.
//
// Shrink       Ranks that lose the rank that serves the store, 0 at first, move to the server of
//              the lowest rank left. Ranks that still use the old server do not meet them: a later
//              group of both kinds ends in DeadlineExceeded that names the ranks that did not join.
//              Calls of older groups need no store.
absl::StatusOr<std::unique_ptr<Engine>> CreateGlooEngine(const GlooOptions& options,
                                                         device::Context& context);

// The same with a context that this group and those made of it keep.
absl::StatusOr<std::unique_ptr<Engine>> CreateGlooEngine(const GlooOptions& options,
                                                         std::shared_ptr<device::Context> context);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_ENGINE_H_
