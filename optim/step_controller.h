#ifndef BRIGADE_OPTIM_STEP_CONTROLLER_H_
#define BRIGADE_OPTIM_STEP_CONTROLLER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/loss_scaler.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/precision/dtype.h"

namespace brigade::optim {

struct StepControllerOptions {
  LossScaler loss_scaler = {};
  double max_grad_norm = std::numeric_limits<double>::infinity();  // global norm; infinity: no clipping
  // What gradients are divided by: ranks times micro-batches for a mean of means, 1 for a sum.
  double grad_divisor = 1.0;
  int ranks = 1;  // whose statistics are added
};

// The state of a training run that lives in device memory, and each step's decision: overflow or not, loss
// scale, clipping, step count, learning rates. No host wait; the host reads the state later.
//
// Memory       Device memory of purpose scratch: `Bytes(...)`.
// Stream       Calls enqueue on the stream given and never wait, but where they say so. Calls on different
//              streams must be ordered by events.
// Errors       InvalidArgument naming the option or argument, and its value.
class StepController {
 public:
  // Enqueues the initial state on `stream`. `context` must outlive it.
  static absl::StatusOr<std::unique_ptr<StepController>> Create(const OptimizerOptions& optimizer,
                                                                const StepControllerOptions& options,
                                                                device::Context& context,
                                                                device::Stream& stream);

  // Device memory that a controller with these options has.
  static int64_t Bytes(const OptimizerOptions& optimizer, const StepControllerOptions& options);

  // Device memory, [ranks], for grad_check and an all-gather to write before Decide reads it.
  absl::Span<kernels::GradStats> stats() { return stats_; }

  // The decision, from `stats`.
  absl::Status Decide(device::Stream& stream);

  // Device memory. Good until the next Decide.
  const kernels::StepState* state() const;
  const kernels::GroupStep* group_steps() const;  // [groups]

  // scaled = loss * loss scale, [count] of `dtype` (float32, float16, bfloat16): what backward begins with.
  // Device memory; may be in place.
  absl::Status ScaleLoss(const void* loss, void* scaled, int64_t count, precision::DType dtype,
                         device::Stream& stream);

  // From the next Decide on: another rate for the group's schedule to refer to, or another schedule, which goes on
  // at the step reached. Waits only if the two changes before are not done yet.
  absl::Status SetLearningRate(int group, double lr, device::Stream& stream);
  absl::Status SetSchedule(int group, double lr, const Schedule& schedule, device::Stream& stream);

  // Reads of the state without stopping the stream: RequestState enqueues a copy; TakeState gives the oldest
  // copy that has arrived, in order of requests, or nullopt. At most kReads copies wait: ResourceExhausted beyond.
  static constexpr int kReads = 16;
  absl::Status RequestState(device::Stream& stream);
  absl::StatusOr<std::optional<kernels::StepState>> TakeState();

  // The state now, for a checkpoint; waits for the stream. And the state from one, for training to go on; also
  // ends stuck_at_minimum.
  absl::StatusOr<kernels::StepState> SaveState(device::Stream& stream);
  absl::Status LoadState(const kernels::StepState& state, device::Stream& stream);
};

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_STEP_CONTROLLER_H_
