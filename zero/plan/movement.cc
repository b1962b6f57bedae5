#include "brigade/zero/plan/movement.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "brigade/device/memory_stats.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/plan/file_layout.h"
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
    const bool goes_up_for_gathers = options.offload.parameters != device::Tier::kDevice;
    if (goes_up_for_gathers) {
      const int64_t raised = weights * (internal::WeightGathersOf(plan, options, bucket) -
                                        internal::NearGathersOf(plan, options, bucket));
      movement.from_host += raised;
      if (options.offload.file_parameters()) movement.file_read += raised;
    } else if (offloaded[b]) {
      movement.from_host += weights;
    }
    if (options.offload.file_parameters() && bucket.trainable) movement.file_written += weights;
  }
  const int64_t state = internal::FileLayout(plan, options).Bytes(/*is_state=*/true);
  movement.file_read += state;
  movement.file_written += state;
  return movement;
}

std::string WearOf(int64_t bytes_written_per_step) {
  constexpr double kMadeForBytes = 600e12;
  const auto bytes = static_cast<double>(bytes_written_per_step);
  return absl::StrFormat(
      "%.3g GB are written to files in each step: %.3g steps use up an SSD that is made for 600 TB",
      bytes / 1e9, kMadeForBytes / bytes);
}

}  // namespace brigade::zero
