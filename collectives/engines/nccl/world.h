#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_WORLD_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_WORLD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/gloo/world.h"
#include "brigade/collectives/engines/nccl/nccl_engine.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

struct NcclWorldOptions {
  GlooWorldOptions
      side;          // how the processes find and hear each other; its timeout is that of `nccl`
  NcclOptions nccl;  // with no functions in its api NCCL is loaded
};

// The communicator of all processes that a launcher has started, one GPU each:
//
//   BRIGADE_ASSIGN_OR_RETURN(auto launch_info, LaunchInfoFromEnvironment());
//   device::ContextOptions options = {.device = device::Cuda(launch_info.local_rank)};
//   ...
//   BRIGADE_ASSIGN_OR_RETURN(auto world, JoinNcclWorld(launch_info, {}, *context));
//
// Returns when all are there. Errors as of LoadNccl, JoinGlooWorld and CreateNcclEngine.
absl::StatusOr<std::unique_ptr<Communicator>> JoinNcclWorld(const LaunchInfo& launch_info,
                                                            const NcclWorldOptions& options,
                                                            device::Context& context);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_WORLD_H_
