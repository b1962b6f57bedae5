#include "brigade/zero/plan/movement.h"

#include <vector>

#include "brigade/precision/dtype.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::zero {

Movement MovementOfStep(const Plan& plan, const ZeroOptions& options) {
  Movement movement;
  if (!options.offload.enabled()) return movement;
  movement.to_host = internal::DecisionBytes(options);
  const std::vector<char> offloaded = internal::OffloadedBuckets(plan, options);
  for (size_t b = 0; b < offloaded.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    const int64_t weights = bucket.bytes() / plan.ranks();
    if (offloaded[b]) {
      movement.to_host +=
          plan.slice(bucket) * precision::SizeOf(internal::FinalGradientType(options, bucket));
    }
    if (options.offload.host_parameters()) {
      movement.from_host += weights * internal::WeightGathersOf(plan, options, bucket);
    } else if (offloaded[b]) {
      movement.from_host += weights;
    }
  }
  return movement;
}

}  // namespace brigade::zero
