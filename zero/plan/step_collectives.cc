#include "brigade/zero/plan/step_collectives.h"

#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

using collectives::CollectiveKind;

collectives::CollectiveSignature ReduceScatterOf(const ZeroOptions& options, int64_t count,
                                                 precision::DType dtype) {
  return {.kind = CollectiveKind::kReduceScatter,
          .algorithm = options.algorithm,
          .dtype = dtype,
          .count = count,
          .reduction = options.reduction};
}

collectives::CollectiveSignature AllGatherOf(const ZeroOptions& options, int64_t count,
                                             precision::DType dtype) {
  return {.kind = CollectiveKind::kAllGather,
          .algorithm = options.algorithm,
          .dtype = dtype,
          .count = count};
}

std::vector<StepCollective> CollectivesOfStep(const Plan& plan, const ZeroOptions& options) {
  std::vector<StepCollective> all;
  const StageTraits& traits = options.traits();
  const bool once = options.accumulates() && options.accumulation == Accumulation::kAtBoundary;
  for (const Bucket& bucket : plan.buckets()) {
    const int64_t slice = plan.slice(bucket);
    const auto reduces = [&](precision::DType dtype, int64_t times) {
      all.push_back({ReduceScatterOf(options, slice, dtype), times, &Traffic::gradients});
    };
    const auto gathers = [&](precision::DType dtype, int64_t times, int64_t Traffic::*traffic) {
      all.push_back({AllGatherOf(options, slice, dtype), times, traffic});
    };
    if (bucket.trainable) {
      reduces(WireType(options, bucket), once ? 1 : options.micro_batches);
      if (traits.whole_optimizer_state) {
        gathers(FinalGradientType(options, bucket), 1, &Traffic::gradients);
      }
    }
    // Weights: after each update, or for each use.
    if (!StaysWhole(plan, options, bucket)) {
      const auto uses = static_cast<int64_t>(bucket.users.size());
      gathers(bucket.dtype, 2 * uses * options.micro_batches, &Traffic::parameters);
    } else if (bucket.trainable && !traits.whole_optimizer_state) {
      gathers(bucket.dtype, 1, &Traffic::parameters);
    }
  }
  const auto lists = GradientLists(plan, options, [](int) { return nullptr; }).size();
  const auto bytes = static_cast<int64_t>(std::max<size_t>(1, lists) * sizeof(kernels::GradStats));
  all.push_back({AllGatherOf(options, bytes, precision::DType::kUint8), 1, &Traffic::scalars});
  return all;
}

}  // namespace brigade::zero::internal
