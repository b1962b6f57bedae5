#ifndef BRIGADE_KERNELS_STEP_CONTROL_STEP_STATE_H_
#define BRIGADE_KERNELS_STEP_CONTROL_STEP_STATE_H_

// What the kernels of one optimizer step tell each other through device memory. Plain structs of fixed
// layout: they are copied between host and device and gathered across ranks as bytes.

#include <cstdint>

namespace brigade::kernels {

// Written by grad_check, read by step_control: one per rank.
struct GradStats {
  double sum_of_squares;  // infinity unless all_finite
  int64_t all_finite;     // 1 or 0
};
static_assert(sizeof(GradStats) == 16, "one rank's share of the all-gather before step_control");

// The state of step counting and loss scaling, and the decision of the current step. Lives on the device;
// every rank computes the same one. Start from InitialStepState (step_control.h).
struct StepState {
  int64_t step;           // updates made, this one included unless skipped
  int64_t iteration;      // updates tried
  int64_t last_overflow;  // iteration of the last overflow, -1 before the first
  double grad_norm;       // of the unscaled gradient, before clipping; infinity after an overflow
  float loss_scale;       // for the next backward pass
  float grad_multiplier;  // unscales and clips the gradients of this step
  int32_t hysteresis;     // overflows left before the scale is halved
  int32_t skip;           // 1: this step changes no parameter and no moment
  // 1: an overflow at the minimum scale under AtMinimum::kError. Every later step is skipped, and reads of
  // the state see it, until the owner writes a new state.
  int32_t stuck_at_minimum;
  int32_t reserved;  // keeps the size a multiple of 8 on every compiler; 0
};
static_assert(sizeof(StepState) == 56, "copied between host and device as bytes");

// What one step fixes for a parameter group.
struct GroupStep {
  float lr;
  float step_size;            // lr / (1 - beta1^step)
  float inv_sqrt_correction;  // 1 / sqrt(1 - beta2^step)
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_STEP_STATE_H_
