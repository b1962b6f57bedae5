#include "brigade/zero/plan/traffic.h"

#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/plan/factor_layout.h"
#include "brigade/zero/plan/matrix_layout.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero {

absl::StatusOr<Traffic> TrafficOfStep(const Plan& plan, const ZeroOptions& options,
                                      collectives::Communicator& communicator,
                                      const OuterGroups& outer, int64_t tried) {
  Traffic traffic;
  const internal::StepPhase phase = internal::PhaseOf(plan, options, tried);
  for (const auto& each : internal::CollectivesOfStep(plan, options, phase, communicator.rank())) {
    collectives::Communicator& group = internal::GroupOf(each.group, communicator, outer);
    BRIGADE_ASSIGN_OR_RETURN(const auto signature, group.Resolve(each.signature));
    traffic.*each.traffic +=
        each.times * collectives::WireBytes(signature, group.rank(), group.size());
  }
  if (options.optimizer.kind == optim::OptimizerKind::kMuon) {
    traffic.gradients += internal::MatrixLayout(plan, options, communicator.rank()).sent_bytes();
  }
  if (options.optimizer.kind == optim::OptimizerKind::kAdafactor) {
    traffic.gradients += internal::FactorLayout(plan, options, communicator.rank()).sent_bytes();
  }
  return traffic;
}

absl::StatusOr<int64_t> TrafficOfChangedMaster(const Plan& plan, const ZeroOptions& options,
                                               const Bucket& bucket,
                                               collectives::Communicator& communicator) {
  const StageTraits& traits = options.traits();
  if (traits.whole_optimizer_state || !traits.whole_parameters) return 0;
  BRIGADE_ASSIGN_OR_RETURN(const auto signature,
                           communicator.Resolve(internal::WeightGatherOf(plan, options, bucket)));
  return collectives::WireBytes(signature, communicator.rank(), communicator.size());
}

}  // namespace brigade::zero
