#ifndef BRIGADE_OPTIM_STEP_CONTROLLER_H_
#define BRIGADE_OPTIM_STEP_CONTROLLER_H_

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
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
  // The global norm to which gradients are clipped; infinity: no clipping.
  double max_grad_norm = std::numeric_limits<double>::infinity();
  // The divisor of the gradients: ranks times micro-batches for a mean of means, 1 for a sum.
  double grad_divisor = 1.0;
  // The number of ranks whose statistics are added.
  int ranks = 1;
  // Entries of each group's table of learning rates, for schedules that SetSchedule brings; at
  // least those of the longest schedule in any case.
  int64_t lr_table_size = 1;
  // Memory that the stream's work can read, or null: once one is not 0, steps are skipped and
  // change nothing (collectives::Communicator::failure_flag, of whatever gives gradients or
  // statistics). They outlive the controller's work.
  std::array<const int32_t*, kernels::kFailureFlags> failure_flags = {};
};

// InvalidArgument naming the option and its value.
absl::Status Validate(const StepControllerOptions& options);

// What gradients are divided by, and what their norm is, beside the loss scale, where they are no
// longer what the statistics are of.
struct StepDivisors {
  double gradients = 1.0;
  double norm = 1.0;
};

// What an update follows: where StepController has it, or a copy of it.
struct StepDecision {
  const kernels::StepState* state = nullptr;
  // [groups]
  const kernels::GroupStep* group_steps = nullptr;
};

// The state of a training run that lives in device memory, and each step's decision: overflow or
// not, loss scale, clipping, step count, learning rates. No host wait; the host reads the state
// later.
//
// Memory       Device memory of purpose scratch: Bytes(...). The host's, of the same:
//              HostBytes(...), two tables of one group's rates, and kReads + 1 states.
// Stream       Calls enqueue on the stream given, allocate nothing in steady state and never wait,
//              but where they say so. Calls on different streams must be ordered by events.
// Threads      One thread at a time.
// Errors       InvalidArgument naming the option or argument, and its value; all stays as it was.
class StepController {
 public:
  // Waits for `stream`, on which it copies the initial state.
  static absl::StatusOr<std::unique_ptr<StepController>> Create(
      const OptimizerOptions& optimizer, const StepControllerOptions& options,
      device::Context& context, device::Stream& stream);

  StepController(const StepController&) = delete;
  StepController& operator=(const StepController&) = delete;

  // Device memory that a controller with these options has; they must be valid.
  static int64_t Bytes(const OptimizerOptions& optimizer, const StepControllerOptions& options);
  // The host's memory, likewise.
  static int64_t HostBytes(const OptimizerOptions& optimizer, const StepControllerOptions& options);

  // Device memory, [ranks], for grad_check and an all-gather to write before Decide reads it.
  absl::Span<kernels::GradStats> stats() { return stats_.as<kernels::GradStats>(); }

  // The decision, from `stats`.
  absl::Status Decide(device::Stream& stream);
  // The same with other divisors than StepControllerOptions::grad_divisor.
  absl::Status Decide(const StepDivisors& divisors, device::Stream& stream);
  // What Decide would decide now, into memory of the caller: one state and [groups]. The state here
  // stays as it is.
  absl::Status Foresee(const StepDivisors& divisors, kernels::StepState* state,
                       kernels::GroupStep* group_steps, device::Stream& stream);

  // Device memory, valid until the next Decide; group_steps: [groups].
  const kernels::StepState* state() const { return state_.as<kernels::StepState>().data(); }
  const kernels::GroupStep* group_steps() const {
    return group_steps_.as<kernels::GroupStep>().data();
  }
  StepDecision decision() const { return {state(), group_steps()}; }

  // scaled = loss * loss scale, [count] of `dtype` (float32, float16, bfloat16): what backward
  // begins with. Device memory; the two must not overlap.
  absl::Status ScaleLoss(const void* loss, void* scaled, int64_t count, precision::DType dtype,
                         device::Stream& stream);

  // From the next Decide on: another rate for the group's schedule to refer to, or another
  // schedule, which goes on at the step reached. Waits only if the two changes before are not done
  // yet. FailedPrecondition if the group's schedule names rates of its own; InvalidArgument if the
  // schedule's table is longer than the controller's.
  absl::Status SetLearningRate(int group, double lr, device::Stream& stream);
  absl::Status SetSchedule(int group, double lr, const Schedule& schedule, device::Stream& stream);

  // The group, with rate and schedule as they were last set.
  const ParameterGroup& group(int index) const {
    return optimizer_.groups[static_cast<size_t>(index)];
  }

  // Reads of the state without stopping the stream: RequestState enqueues a copy; TakeState gives
  // the oldest copy that has arrived, in order of requests, or nullopt. At most kReads copies wait:
  // ResourceExhausted beyond. If the stream fails, its error takes the copy's place.
  static constexpr int kReads = 16;
  absl::Status RequestState(device::Stream& stream);
  absl::StatusOr<std::optional<kernels::StepState>> TakeState();

  // The state now, for a checkpoint; and the state from one, for training to go on, which also ends
  // stuck_at_minimum. Both wait for the stream.
  absl::StatusOr<kernels::StepState> SaveState(device::Stream& stream);
  absl::Status LoadState(const kernels::StepState& state, device::Stream& stream);
  // Whether LoadState would take it: InvalidArgument naming what it would not.
  absl::Status CheckState(const kernels::StepState& state) const;

 private:
  // Page-locked memory for copies, and the event of their end.
  struct Staging {
    device::Buffer buffer;
    std::unique_ptr<device::Event> done;
  };

  StepController(const OptimizerOptions& optimizer, const StepControllerOptions& options);
  static absl::StatusOr<Staging> CreateStaging(int64_t bytes, absl::string_view name,
                                               device::Context& context);

  absl::Status Allocate(device::Context& context);
  kernels::StepControlOptions With(const StepDivisors& divisors) const;
  absl::Status CheckGroup(int group) const;
  absl::Status CopyTable(int group, const ParameterGroup& rates, device::Stream& stream);

  OptimizerOptions optimizer_;
  const int ranks_;
  std::vector<kernels::StepBetas> betas_;
  kernels::StepControlOptions control_;

  device::Buffer stats_, state_, group_steps_, lr_table_;
  // Two, used in turn.
  std::array<Staging, 2> tables_;
  int64_t table_changes_ = 0;
  // A ring buffer.
  std::array<Staging, kReads> reads_;
  int64_t requested_ = 0, taken_ = 0;
  // A state that SaveState or LoadState copies.
  device::Buffer checkpoint_;
};

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_STEP_CONTROLLER_H_
