#ifndef BRIGADE_ZERO_INTERNAL_GRADIENT_EXCHANGE_H_
#define BRIGADE_ZERO_INTERNAL_GRADIENT_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/optim/step_controller.h"
#include "brigade/optim/step_executor.h"
#include "brigade/zero/internal/gradient_store.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// From each rank's own gradients to the mean of all ranks' in fp32, in fewer bytes, with the errors
// that exchanges leave (CompressionOptions). On the communication stream, in Step: nothing waits on
// the host.
//
// Two decisions are made of the same statistics, with the same result but for failures. The first
// one says by what to multiply gradients, and whether errors move at all. The second one comes
// behind the last exchange, so that a communicator that fails in one of them skips the step, and
// leaves masters and moments as they were.
class GradientExchange {
 public:
  static absl::StatusOr<std::unique_ptr<GradientExchange>> Create(const Plan& plan,
                                                                  const ZeroOptions& options,
                                                                  const GradientStore& gradients,
                                                                  StepStreams& streams);

  // Checks this rank's gradients, decides with all ranks, and exchanges each bucket.
  absl::Status Enqueue(optim::StepController& controller);
  // What the update follows then: gradients are unscaled and clipped.
  optim::StepDecision decision(const optim::StepController& controller) const {
    return {state(), controller.group_steps()};
  }

  // The mean of a bucket's gradients: the elements of its parameters, one after another.
  const float* Mean(int bucket) const { return memory(bucket).mean.as<float>().data(); }

  // This rank's own errors of a bucket, [ExchangedElements], and those of the sum of its part,
  // [OneBitPart].
  collectives::OneBitErrors Errors(int bucket) const {
    return {memory(bucket).local.as<float>().data(), memory(bucket).sum.as<float>().data()};
  }
  // As at the beginning of a run.
  absl::Status ClearErrors();

  // What is saved of errors, for any number of ranks: slices of the bucket, as those of the state.
  // Array 0 is the mean over ranks of their own errors, array 1 the errors of sums.
  float* Slice(int bucket, int array) const {
    const BucketMemory& of = memory(bucket);
    return of.slices.as<float>().data() + array * of.slices.bytes() / kErrorArrays / 4;
  }
  // A call of all ranks, between steps: each rank's own errors become the mean of all ranks', and
  // the slices are what they are now.
  absl::Status Share();
  // The other way round, from the slices of all ranks.
  absl::Status TakeShared(int bucket);

 private:
  struct BucketMemory {
    device::Buffer mean, local, sum, slices;
  };

  GradientExchange(const Plan& plan, const ZeroOptions& options, const GradientStore& gradients,
                   StepStreams& streams);

  const BucketMemory& memory(int bucket) const { return memory_[static_cast<size_t>(bucket)]; }
  kernels::StepState* state() const { return state_.as<kernels::StepState>().data(); }
  absl::Status Check(optim::StepController& controller);
  absl::Status Unscale(int bucket);
  absl::Status ExchangeBucket(int bucket);
  // Where an entry's elements of this rank's slice, or of its part of the sum, are.
  struct Overlap {
    int64_t in_bucket, in_exchange, size;
  };
  std::vector<Overlap> InSlice(int bucket) const;
  std::vector<Overlap> InPart(int bucket) const;
  absl::Status Copy(std::vector<kernels::CastSegment> segments, const float* scale = nullptr);

  const Plan& plan_;
  const ZeroOptions& options_;
  const GradientStore& gradients_;
  StepStreams& streams_;
  const optim::StepDivisors divisors_;
  const std::vector<optim::GradientList> checked_;
  // By bucket.
  std::vector<BucketMemory> memory_;
  std::unique_ptr<collectives::OneBitAllReduce> signs_;
  // Of all lists' tiles, one after the other.
  device::Buffer tile_sums_;
  // The first decision, then the second one as the update reads it.
  device::Buffer state_, group_steps_;
  // 1 / ranks.
  device::Buffer inverse_ranks_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_GRADIENT_EXCHANGE_H_
