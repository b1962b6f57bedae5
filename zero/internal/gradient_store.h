#ifndef BRIGADE_ZERO_INTERNAL_GRADIENT_STORE_H_
#define BRIGADE_ZERO_INTERNAL_GRADIENT_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/event.h"
#include "brigade/kernels/fill/fill_types.h"
#include "brigade/zero/internal/buffer_pool.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/step.h"

namespace brigade::zero::internal {

// A gradient's way from backward to the update: memory to write to, reduced bucket by bucket in the plan's
// order, added up over micro-batches.
class GradientStore {
 public:
  static absl::StatusOr<std::unique_ptr<GradientStore>> Create(const Plan& plan,
                                                               const ZeroOptions& options,
                                                               StepStreams& streams);

  // Memory for the unit's part of a gradient in this micro-batch. What no unit asks for is zero.
  absl::StatusOr<GradientTarget> Target(int unit, int parameter);
  // The unit's parts are enqueued on the compute stream. Reduces what is complete.
  absl::Status Ready(int unit);

  // Units that asked for nothing need not be reported; FailedPrecondition naming one that did and was not.
  absl::Status FinishMicroBatch();
  int finished_micro_batches() const { return micro_batch_; }

  // The update has read all gradients.
  absl::Status FinishStep();
  // Forgets the micro-batches so far, and events that carry errors. Both streams are idle and in order.
  void StartAgain();

  // The sum over ranks and micro-batches, of FinalGradientType: this rank's slice of a bucket; and the whole, null
  // where there is none.
  void* FinalSlice(int bucket) const;
  void* FinalWhole(int bucket) const;

 private:
  struct State {
    std::unique_ptr<PooledBuffer> own;  // of a bucket whose gradients stay whole
    PooledBuffer* slot = nullptr;       // where backward writes now
    device::Buffer slice;        // the reduced slice, where it is not a part of `own` or of the sum
    device::Buffer accumulator;  // the sum over micro-batches, of the bucket or of the slice
    std::unique_ptr<device::Event> written;
    int unreported = 0;  // units
  };
  struct Written {  // a parameter in this micro-batch
    int unit = -1;  // that asked last
    int units = 0;  // that have asked
  };

  GradientStore(const Plan& plan, const ZeroOptions& options, StepStreams& streams);

  State& state(int bucket) { return states_[static_cast<size_t>(bucket)]; }
  const State& state(int bucket) const { return states_[static_cast<size_t>(bucket)]; }
  const Bucket& bucket(int index) const { return plan_.bucket(index); }
  // Of whole arrays: where this rank's slice is.
  void* SliceOf(const device::Buffer& whole, int bucket, precision::DType dtype) const;

  void StartMicroBatch();
  absl::Status Provide(int bucket);  // memory to write to
  bool MayTakeSlot(int bucket) const;
  int FirstOfSize(int64_t bytes) const;
  absl::Status ZeroUnwritten(int bucket);
  absl::Status Fill(precision::DType dtype);  // fills_, with 0
  absl::Status ReduceComplete();
  absl::Status Reduce(int bucket);
  absl::Status ReduceIntoSum(int bucket);
  absl::Status AddToSum(int bucket, const void* source, void* sum, int64_t size);

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  BufferPool pool_;
  std::vector<State> states_;  // of buckets
  std::vector<int> order_;     // trainable buckets, by when backward completes them
  size_t next_ = 0;            // in order_: to be reduced
  std::vector<Written> written_;
  std::vector<char> reported_, asked_;  // units
  std::vector<kernels::FillSegment> fills_;
  int micro_batch_ = 0;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_GRADIENT_STORE_H_
