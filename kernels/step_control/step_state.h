#ifndef BRIGADE_KERNELS_STEP_CONTROL_STEP_STATE_H_
#define BRIGADE_KERNELS_STEP_CONTROL_STEP_STATE_H_

// What the kernels of one optimizer step tell each other through device memory. Plain structs of
// fixed layout: they are copied between host and device and gathered across ranks as bytes.

#include <cstdint>

namespace brigade::kernels {

// Written by grad_check, read by step_control: one per rank.
struct GradStats {
  // Infinity unless all_finite.
  double sum_of_squares;
  // 1 or 0.
  int64_t all_finite;
};
static_assert(sizeof(GradStats) == 16, "one rank's share of the all-gather before step_control");

// The state of step counting and loss scaling, and the decision of the current step. Lives on the
// device; every rank computes the same one. Start from InitialStepState (step_control.h).
struct StepState {
  // The updates made, this one included unless it is skipped.
  int64_t step;
  // The updates tried.
  int64_t iteration;
  // The iteration of the last overflow, -1 before the first.
  int64_t last_overflow;
  // The norm of the unscaled gradient, before clipping; infinity after an overflow.
  double grad_norm;
  // The loss scale of the next backward pass.
  float loss_scale;
  // The factor that unscales and clips the gradients of this step.
  float grad_multiplier;
  // The overflows left before the scale is halved.
  int32_t hysteresis;
  // 1 if this step changes no parameter and no moment.
  int32_t skip;
  // 1: an overflow at the minimum scale under AtMinimum::kError. Every later step is skipped, and
  // reads of the state see it, until the owner writes a new state.
  int32_t stuck_at_minimum;
  // 0. Keeps the size a multiple of 8 on every compiler.
  int32_t reserved;
};
static_assert(sizeof(StepState) == 56, "copied between host and device as bytes");

// What one step fixes for a parameter group.
struct GroupStep {
  float lr;
  // lr / (1 - beta1^step).
  float step_size;
  // 1 / sqrt(1 - beta2^step).
  float inv_sqrt_correction;
};

// What an update finds wrong with the values of its step; it then changes nothing.
enum class StepError : int32_t {
  kNone,
  // The parameters name no step: state or group_steps is null, or both are, with a step below 1.
  kNoStep,
  // The StepState is not one that StepControl wrote: its step is 0, its skip flag not set.
  kStateNotFilled,
  // The GroupStep is not one that StepControl wrote: it has a zero that no real step has.
  kGroupStepNotFilled,
};

// The same in words, which follow the name of what it is about.
constexpr const char* Describe(StepError error) {
  switch (error) {
    case StepError::kNone:
      return "is complete";
    case StepError::kNoStep:
      return "is not given: state and group_steps, or the numbers of one step counted from 1";
    case StepError::kStateNotFilled:
      return "was not filled: step is 0, and skip is not set";
    case StepError::kGroupStepNotFilled:
      return "was not filled: it is zero";
  }
  return "is invalid";
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_STEP_STATE_H_
