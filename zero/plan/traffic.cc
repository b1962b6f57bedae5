#include "brigade/zero/plan/traffic.h"

#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero {

absl::StatusOr<Traffic> TrafficOfStep(const Plan& plan, const ZeroOptions& options,
                                      collectives::Communicator& communicator) {
  Traffic traffic;
  for (const internal::StepCollective& each : internal::CollectivesOfStep(plan, options)) {
    BRIGADE_ASSIGN_OR_RETURN(const auto signature, communicator.Resolve(each.signature));
    traffic.*each.traffic +=
        each.times * collectives::WireBytes(signature, communicator.rank(), communicator.size());
  }
  return traffic;
}

}  // namespace brigade::zero
