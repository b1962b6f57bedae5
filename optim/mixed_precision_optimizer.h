#ifndef BRIGADE_OPTIM_MIXED_PRECISION_OPTIMIZER_H_
#define BRIGADE_OPTIM_MIXED_PRECISION_OPTIMIZER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/fused_update.h"
#include "brigade/optim/loss_scaler.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"
#include "brigade/optim/step_executor.h"
#include "brigade/precision/dtype.h"

namespace brigade::optim {

// A tensor of the caller. Device memory at any element-aligned address, [size] each; it must
// outlive the optimizer.
struct ParameterArrays {
  // For error messages.
  std::string name = {};
  // Read by the forward and the backward pass; Step writes them.
  void* weights = nullptr;
  // Written by the backward pass.
  const void* grad = nullptr;
  int64_t size = 0;
  // float32, float16 or bfloat16. Weights in fp32 are their own master.
  precision::DType weight_dtype = precision::DType::kBFloat16;
  precision::DType grad_dtype = precision::DType::kBFloat16;
  int32_t group = 0;
};

struct MixedPrecisionOptions {
  OptimizerOptions optimizer = {};
  LossScaler loss_scaler = {};
  // Infinity: no clipping.
  double max_grad_norm = std::numeric_limits<double>::infinity();
  // The micro-batches whose gradients make a step.
  int micro_batches = 1;
  // The divisor of the sum of the micro-batches' gradients. None: their number, for a mean of
  // means.
  std::optional<double> grad_divisor = {};
  // The type of that sum; used with several micro-batches only.
  precision::DType accumulator_dtype = precision::DType::kFloat32;
  // StepControllerOptions::lr_table_size.
  int64_t lr_table_size = 1;
};

// The state from which a run can go on, in host memory. Arrays have the elements of all parameters
// in their order.
struct MixedPrecisionState {
  std::vector<float> master;
  // Empty if the optimizer has none.
  std::vector<float> first_moment, second_moment;
  kernels::StepState step = {};
};

// Mixed-precision training on one device: an fp32 master of 16-bit weights, a loss scale in device
// memory, 16-bit gradients, accumulation, clipping by the global norm, and an update in fp32 that
// writes the 16-bit weights.
//
//   for each micro-batch: forward; ScaleLoss; backward; AccumulateGradients
//   Step
//
// Precision    Gradients are rounded as they come and once an addition, the update as in
//              kernels/adam, sgd, lion and lamb.
// Traffic      Step: two passes. grad_check reads the gradients; the update reads them again and
//              moves the state, which LAMB does twice. AccumulateGradients: what kernels/cast
//              says; nothing with one micro-batch.
// Memory       S: elements, each parameter's rounded up to 64; L: pairs of gradient and weight
//              type. In bytes:
//              optimizer_state  4 S of parameters with 16-bit weights + 4 S of all *
//                               Moments(optimizer)
//              gradients        micro_batches > 1: S * that of the accumulator's type
//              scratch          StepExecutor::Bytes with a list for each of the L pairs; with LAMB
//                               LambUpdate::Bytes too
// Stream       Calls enqueue on the stream given, allocate nothing in steady state and never wait,
//              but where they say so. Calls on different streams must be ordered by events.
// Threads      One thread at a time.
// Determinism  Same bits on every device, for any number of threads. With L > 1 the sums of squares
//              of the pairs are added in the order in which they first appear.
// Errors       InvalidArgument naming parameter or option, and value; FailedPrecondition as said
//              below. Then all is as before. An error of the stream: LoadState brings back what is
//              known.
class MixedPrecisionOptimizer {
 public:
  // Reads the weights in the order of `stream`, for which it waits.
  static absl::StatusOr<std::unique_ptr<MixedPrecisionOptimizer>> Create(
      absl::Span<const ParameterArrays> parameters, const MixedPrecisionOptions& options,
      device::Context& context, device::Stream& stream);

  MixedPrecisionOptimizer(const MixedPrecisionOptimizer&) = delete;
  MixedPrecisionOptimizer& operator=(const MixedPrecisionOptimizer&) = delete;

  // Adds the gradients of one micro-batch to the sum; the first one's overwrite it. With one
  // micro-batch the call may be left out. FailedPrecondition if a step's micro-batches are
  // complete.
  absl::Status AccumulateGradients(device::Stream& stream);

  // Drops the micro-batches accumulated since the last step.
  void DropGradients() { accumulated_ = 0; }

  // Checks, decides and updates. FailedPrecondition, naming both numbers, unless all micro-batches
  // are there.
  absl::Status Step(device::Stream& stream);

  // As in StepController.
  absl::Status ScaleLoss(const void* loss, void* scaled, int64_t count, precision::DType dtype,
                         device::Stream& stream) {
    return executor_->controller().ScaleLoss(loss, scaled, count, dtype, stream);
  }
  absl::Status SetLearningRate(int group, double lr, device::Stream& stream) {
    return executor_->controller().SetLearningRate(group, lr, stream);
  }
  absl::Status SetSchedule(int group, double lr, const Schedule& schedule, device::Stream& stream) {
    return executor_->controller().SetSchedule(group, lr, schedule, stream);
  }
  absl::Status RequestState(device::Stream& stream) {
    return executor_->controller().RequestState(stream);
  }
  absl::StatusOr<std::optional<kernels::StepState>> TakeState() {
    return executor_->controller().TakeState();
  }

  // For a checkpoint; and back, into the weights too, which drops accumulated gradients and ends
  // stuck_at_minimum. Both wait for the stream.
  absl::StatusOr<MixedPrecisionState> SaveState(device::Stream& stream) const;
  absl::Status LoadState(const MixedPrecisionState& state, device::Stream& stream);

 private:
  // Parameters of one pair of types: what a kernel takes in one call.
  struct List {
    precision::DType grad_dtype, weight_dtype;
    // 16-bit weights to master, and back.
    std::vector<kernels::CastSegment> widen = {};
    std::vector<kernels::CastSegment> narrow = {};
    // Gradients to accumulators.
    std::vector<kernels::CastSegment> accumulate = {};
  };

  explicit MixedPrecisionOptimizer(const MixedPrecisionOptions& options) : options_(options) {}

  absl::Status AllocateState(absl::Span<const ParameterArrays> parameters,
                             device::Context& context);
  StepLists MakeLists(absl::Span<const ParameterArrays> parameters);
  size_t ListOf(const ParameterArrays& parameter);

  bool accumulates() const { return options_.micro_batches > 1; }
  precision::DType CheckedDType(const List& list) const {
    return accumulates() ? options_.accumulator_dtype : list.grad_dtype;
  }
  // Of an array of MixedPrecisionState.
  int64_t ElementsOfArray(int index) const;

  const MixedPrecisionOptions options_;
  std::unique_ptr<StepExecutor> executor_;
  device::Buffer master_, moments_[2], accumulators_;
  std::vector<List> lists_;
  // Of all parameters in their order.
  std::vector<UpdateSegment> segments_;
  // Of all parameters.
  int64_t elements_ = 0;
  // Micro-batches since the last step.
  int accumulated_ = 0;
};

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_MIXED_PRECISION_OPTIMIZER_H_
