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
#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/fused_update.h"
#include "brigade/optim/loss_scaler.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"

namespace brigade::optim {

// A tensor that somebody else owns and trains. Device memory at any element-aligned address, [size] each; it must
// outlive the optimizer.
struct Parameter {
  std::string name = {};       // in messages
  void* weights = nullptr;     // what forward and backward read; Step writes it
  const void* grad = nullptr;  // what backward writes
  int64_t size = 0;
  // float32, float16 or bfloat16. Weights in fp32 are their own master.
  precision::DType weight_dtype = precision::DType::kBFloat16;
  precision::DType grad_dtype = precision::DType::kBFloat16;
  int32_t group = 0;
};

struct MixedPrecisionOptions {
  OptimizerOptions optimizer = {};
  LossScaler loss_scaler = {};
  double max_grad_norm = std::numeric_limits<double>::infinity();  // infinity: no clipping
  int micro_batches = 1;                                           // whose gradients make a step
  // What the sum of their gradients is divided by. None: their number, for a mean of means.
  std::optional<double> grad_divisor = {};
  // Of the sum; used with several micro-batches only.
  precision::DType accumulator_dtype = precision::DType::kFloat32;
  int64_t lr_table_size = 1;  // step_controller.h
};

// Everything that a run goes on from, in host memory. Arrays have the elements of all parameters in their order.
struct MixedPrecisionState {
  std::vector<float> master;
  std::vector<float> first_moment, second_moment;  // empty if the optimizer has none
  kernels::StepState step = {};
};

// Mixed-precision training on one device: an fp32 master of 16-bit weights, a loss scale in device memory, 16-bit
// gradients, accumulation, clipping by the global norm, and an update in fp32 that writes the 16-bit weights.
//
//   for each micro-batch: forward; ScaleLoss; backward; AccumulateGradients
//   Step
//
// Precision    Gradients are rounded as they come and once an addition, the update as in kernels/adam and sgd.
// Traffic      Step: two passes. grad_check reads the gradients; the update reads them again and moves the state.
//              AccumulateGradients: what kernels/cast says; nothing with one micro-batch.
// Memory       S: elements, each parameter's rounded up to 64; L: pairs of gradient and weight type. In bytes:
//              optimizer_state  4 S of parameters with 16-bit weights + 4 S of all * Moments(optimizer)
//              gradients        micro_batches > 1: S * that of the accumulator's type
//              scratch          8 * tiles of 8192 elements (begun ones too, per parameter) of the pair that has
//                               most + StepController::Bytes with L ranks
// Stream       Calls enqueue on the stream given, allocate nothing in steady state and never wait, but where they
//              say so. Calls on different streams must be ordered by events.
// Threads      One thread at a time.
// Determinism  Same bits on every device, for any number of threads. With L > 1 the sums of squares of the pairs
//              are added in the order in which they first appear.
// Errors       InvalidArgument naming parameter or option, and value; FailedPrecondition as said below. Then all
//              is as before. An error of the stream: LoadState brings back what is known.
class MixedPrecisionOptimizer {
 public:
  // Takes the weights as they are now in the order of `stream`, for which it waits.
  static absl::StatusOr<std::unique_ptr<MixedPrecisionOptimizer>> Create(
      absl::Span<const Parameter> parameters, const MixedPrecisionOptions& options,
      device::Context& context, device::Stream& stream);

  MixedPrecisionOptimizer(const MixedPrecisionOptimizer&) = delete;
  MixedPrecisionOptimizer& operator=(const MixedPrecisionOptimizer&) = delete;

  // Takes the gradients of one micro-batch: the first one's overwrite, the others' are added. With one micro-batch
  // it may be left out. FailedPrecondition if a step's micro-batches are complete.
  absl::Status AccumulateGradients(device::Stream& stream);

  // Forgets the micro-batches accumulated since the last step.
  void DropGradients() { accumulated_ = 0; }

  // Checks, decides and updates. FailedPrecondition, naming both numbers, unless all micro-batches are there.
  absl::Status Step(device::Stream& stream);

  // As in StepController.
  absl::Status ScaleLoss(const void* loss, void* scaled, int64_t count, precision::DType dtype,
                         device::Stream& stream) {
    return controller_->ScaleLoss(loss, scaled, count, dtype, stream);
  }
  absl::Status SetLearningRate(int group, double lr, device::Stream& stream) {
    return controller_->SetLearningRate(group, lr, stream);
  }
  absl::Status SetSchedule(int group, double lr, const Schedule& schedule, device::Stream& stream) {
    return controller_->SetSchedule(group, lr, schedule, stream);
  }
  absl::Status RequestState(device::Stream& stream) { return controller_->RequestState(stream); }
  absl::StatusOr<std::optional<kernels::StepState>> TakeState() { return controller_->TakeState(); }

  // For a checkpoint; and back, into the weights too, which drops accumulated gradients and ends stuck_at_minimum.
  // Both wait for the stream.
  absl::StatusOr<MixedPrecisionState> SaveState(device::Stream& stream) const;
  absl::Status LoadState(const MixedPrecisionState& state, device::Stream& stream);

 private:
  // Parameters of one pair of types: what a kernel takes in one call.
  struct List {
    precision::DType grad_dtype, weight_dtype;
    std::vector<kernels::CastSegment> widen = {};       // 16-bit weights to master
    std::vector<kernels::CastSegment> narrow = {};      // master to 16-bit weights
    std::vector<kernels::CastSegment> accumulate = {};  // gradients to accumulators
    std::vector<kernels::GradSegment> check = {};
    std::optional<FusedUpdate> update = {};
  };

  explicit MixedPrecisionOptimizer(const MixedPrecisionOptions& options) : options_(options) {}

  absl::Status AllocateState(absl::Span<const Parameter> parameters, device::Context& context);
  void MakeLists(absl::Span<const Parameter> parameters);
  size_t ListOf(const Parameter& parameter);
  absl::Status AllocateWorkspace(device::Context& context);

  bool accumulates() const { return options_.micro_batches > 1; }
  precision::DType CheckedDType(const List& list) const {
    return accumulates() ? options_.accumulator_dtype : list.grad_dtype;
  }
  int64_t ElementsOfArray(int index) const;  // of those in MixedPrecisionState

  const MixedPrecisionOptions options_;
  std::unique_ptr<StepController> controller_;
  device::Buffer master_, moments_[2], accumulators_, workspace_;
  std::vector<List> lists_;
  std::vector<UpdateSegment> segments_;  // of all parameters in their order
  int64_t elements_ = 0;                 // of all parameters
  int accumulated_ = 0;                  // micro-batches
};

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_MIXED_PRECISION_OPTIMIZER_H_
