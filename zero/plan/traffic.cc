#include "brigade/zero/plan/traffic.h"

#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero {

Traffic TrafficOfStep(const Plan& plan, const ZeroOptions& options, int rank) {
  Traffic traffic;
  for (const internal::StepCollective& each : internal::CollectivesOfStep(plan, options)) {
    traffic.*each.traffic +=
        each.times * collectives::WireBytes(each.signature, rank, plan.ranks());
  }
  return traffic;
}

}  // namespace brigade::zero
