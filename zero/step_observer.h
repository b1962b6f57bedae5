#ifndef BRIGADE_ZERO_STEP_OBSERVER_H_
#define BRIGADE_ZERO_STEP_OBSERVER_H_

// Who reads what a step has and makes, where it lies (ZeroOptimizer::Observe): checksums, copies.

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero {

// Elements of a bucket, in device memory, with padding.
struct ObservedArray {
  int bucket = 0;
  // In the bucket.
  ElementRange range = {};
  const void* data = nullptr;
  precision::DType dtype = precision::DType::kFloat32;
};

// Enqueues work on `stream` that reads the arrays, which stay as they are until that is done. An
// error ends the step. Calls come from the thread that calls the ZeroOptimizer.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  // Before the update, behind all passes: the weights as these had them, of all buckets. Whole
  // buckets in stages 0 to 2, this rank's slices in stage 3. Of weights that offload keeps
  // elsewhere in a call for each bucket, as those of OnUpdated.
  virtual absl::Status OnWeights(absl::Span<const ObservedArray> weights,
                                 device::Stream& stream) = 0;
  // The sums over all ranks and micro-batches that the update is made of, times the loss scale:
  // this rank's slices. With offload some come during the backward pass, in a call each.
  virtual absl::Status OnGradients(absl::Span<const ObservedArray> gradients,
                                   device::Stream& stream) = 0;
  // Behind the update and the gathers that follow it: this rank's slices of all weights.
  virtual absl::Status OnUpdated(absl::Span<const ObservedArray> weights,
                                 device::Stream& stream) = 0;
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_STEP_OBSERVER_H_
