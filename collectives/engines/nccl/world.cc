#include "brigade/collectives/engines/nccl/world.h"

#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::collectives {

absl::StatusOr<std::unique_ptr<Communicator>> JoinNcclWorld(const LaunchInfo& launch_info,
                                                            const NcclWorldOptions& options,
                                                            device::Context& context) {
  NcclOptions nccl = options.nccl;
  if (nccl.api.get_version == nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(auto api, LoadNccl());
    nccl.api = api;
  }
  device::ContextOptions host;
  host.compute_threads = 1;
  host.name = "side channel";
  BRIGADE_ASSIGN_OR_RETURN(auto side_context, device::Context::Create(host));
  nccl.side_context = std::move(side_context);
  GlooWorldOptions side_options = options.side;
  side_options.timeout = absl::FromChrono(nccl.timeout);
  BRIGADE_ASSIGN_OR_RETURN(auto side,
                           CreateGlooWorldEngine(launch_info, side_options, *nccl.side_context));
  BRIGADE_ASSIGN_OR_RETURN(auto engine, CreateNcclEngine(nccl, std::move(side), context));
  return Communicator::Create(std::move(engine), context);
}

}  // namespace brigade::collectives
