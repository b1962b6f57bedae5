#include "brigade/zero/plan/traffic.h"

#include <set>

#include "brigade/precision/dtype.h"

namespace brigade::zero {

Traffic TrafficOfStep(const Plan& plan, const ZeroOptions& options) {
  Traffic traffic;
  const int64_t others = plan.ranks() - 1;
  const bool at_once = options.accumulation == Accumulation::kAtBoundary && options.accumulates();
  std::set<precision::DType> gradient_types;
  for (const Bucket& bucket : plan.buckets()) {
    const int64_t sent = plan.slice(bucket) * others;  // elements: (N - 1) / N of the bucket
    const int64_t element = precision::SizeOf(bucket.dtype);
    if (bucket.trainable) {
      const precision::DType final_type =
          options.accumulates() ? options.accumulator : bucket.dtype;
      gradient_types.insert(final_type);
      const int64_t final_element = precision::SizeOf(final_type);
      traffic.gradients += sent * (at_once ? final_element : element * options.micro_batches);
      if (options.stage == 0) traffic.gradients += sent * final_element;
      if (options.stage == 1 || options.stage == 2) traffic.parameters += sent * element;
    }
    if (options.traits().whole_parameters) continue;
    if (plan.unit(bucket.unit).size > options.persistence_threshold) {
      const auto uses = static_cast<int64_t>(bucket.users.size());
      traffic.parameters += 2 * uses * options.micro_batches * sent * element;
    } else if (bucket.trainable) {
      traffic.parameters += sent * element;
    }
  }
  // Statistics of 16 bytes for each type of gradient.
  traffic.scalars = others * 16 * static_cast<int64_t>(gradient_types.size());
  return traffic;
}

}  // namespace brigade::zero
