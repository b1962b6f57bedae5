#ifndef BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_MATH_H_
#define BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_MATH_H_

// What a step decides before it updates anything, for CUDA and the CPU alike: all in double with
// explicit rounding.
//
// Source       Loss scaling: the rule of DeepSpeed 0.19 for ZeRO. Clipping: Pascanu et al. 2013.

#include <cstdint>

#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

inline constexpr int kMaxStepGroups = 128;

struct StepBetas {
  double beta1;
  double beta2;
};

// Of gradients, and of statistics.
inline constexpr int kFailureFlags = 5;

// All that a call passes; plain so that it travels as a kernel argument.
struct StepParameters {
  // [ranks].
  const GradStats* stats;
  int64_t ranks;
  StepState* state;
  // [groups].
  GroupStep* group_steps;
  // Each may be null.
  const int32_t* failure_flags[kFailureFlags];
  // [groups][lr_table_size].
  const float* lr_table;
  int64_t lr_table_size;
  int64_t window;
  double divisor;
  // Of the norm; 0: the same.
  double norm_divisor;
  double max_grad_norm;
  float min_scale;
  float max_scale;
  int32_t hysteresis;
  int32_t groups;
  bool dynamic;
  bool consecutive_hysteresis;
  bool error_at_minimum;
  bool check_overflow;
  StepBetas betas[kMaxStepGroups];
};

// Moves the scale for the next backward pass and counts the iteration.
BRIGADE_INLINE void UpdateLossScale(const StepParameters& p, bool overflow, StepState& state) {
  if (p.dynamic && overflow) {
    if (p.hysteresis == 1 || state.hysteresis == 1) {
      if (state.loss_scale == p.min_scale && p.error_at_minimum) state.stuck_at_minimum = 1;
      const float halved = precision::Div(state.loss_scale, 2.0f);
      state.loss_scale = halved < p.min_scale ? p.min_scale : halved;
    } else {
      --state.hysteresis;
    }
    state.last_overflow = state.iteration;
  } else if (p.dynamic) {
    if (p.consecutive_hysteresis) state.hysteresis = p.hysteresis;
    const int64_t since = state.iteration - state.last_overflow - 1;
    if (since > 0 && since % p.window == 0) {
      const float doubled = precision::Mul(state.loss_scale, 2.0f);
      state.loss_scale = doubled > p.max_scale ? p.max_scale : doubled;
      if (!p.consecutive_hysteresis) state.hysteresis = p.hysteresis;
    }
  }
  ++state.iteration;
}

// x^n by repeated squaring from the lowest bit of n up. CUDA's pow and the C library's differ.
BRIGADE_INLINE double Power(double x, int64_t n) {
  double result = 1.0;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) result = precision::Mul(result, x);
    x = precision::Mul(x, x);
  }
  return result;
}

BRIGADE_INLINE GroupStep MakeGroupStep(const StepBetas& betas, float lr, int64_t step) {
  const double correction1 = precision::Sub(1.0, Power(betas.beta1, step));
  const double correction2 = precision::Sub(1.0, Power(betas.beta2, step));
  GroupStep group;
  group.lr = lr;
  group.step_size = static_cast<float>(precision::Div(static_cast<double>(lr), correction1));
  group.inv_sqrt_correction = static_cast<float>(precision::Div(1.0, precision::Sqrt(correction2)));
  return group;
}

// DecideStep and DecideGroup read and write device memory: only where the kernel runs.

// The host writes the flag at any time.
BRIGADE_INLINE bool HasFailed(const int32_t* flag) {
  if (flag == nullptr) return false;
#ifdef __CUDA_ARCH__
  return *static_cast<const volatile int32_t*>(flag) != 0;
#else
  return __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0;
#endif
}

// The whole decision but for the groups.
BRIGADE_INLINE void DecideStep(const StepParameters& p) {
  using precision::Add;
  using precision::Div;
  using precision::Mul;
  for (const int32_t* const flag : p.failure_flags) {
    if (!HasFailed(flag)) continue;
    p.state->skip = 1;
    return;
  }
  double sum = 0.0;
  bool finite = true;
  for (int64_t rank = 0; rank < p.ranks; ++rank) {
    sum = Add(sum, p.stats[rank].sum_of_squares);
    finite = finite && p.stats[rank].all_finite != 0;
  }
  StepState state = *p.state;
  if (!(state.loss_scale > 0.0f)) {
    // Not one that InitialStepState made: zeros, say. The update that follows is an error then.
    p.state->step = 0;
    p.state->skip = 0;
    return;
  }
  // With the scale that was in effect during backward.
  const double scale = static_cast<double>(state.loss_scale);
  const double divisor = Mul(scale, p.divisor);
  const double norm_divisor = p.norm_divisor > 0.0 ? Mul(scale, p.norm_divisor) : divisor;
  state.grad_norm = Div(precision::Sqrt(sum), norm_divisor);
  const double ratio = Div(p.max_grad_norm, Add(state.grad_norm, 1e-6));
  const double clip = ratio < 1.0 ? ratio : 1.0;
  const bool overflow = p.check_overflow && !finite;
  UpdateLossScale(p, overflow, state);
  state.skip = overflow || state.stuck_at_minimum != 0 ? 1 : 0;
  state.grad_multiplier = state.skip != 0 ? 0.0f : static_cast<float>(Div(clip, divisor));
  if (state.skip == 0) ++state.step;
  *p.state = state;
}

// What one group makes of it. Follows DecideStep; the groups are independent of each other.
BRIGADE_INLINE void DecideGroup(const StepParameters& p, int32_t group) {
  if (p.state->skip != 0) return;
  const int64_t step = p.state->step;
  if (step < 1) return;
  const int64_t last = p.lr_table_size - 1;
  const int64_t entry = step - 1 < last ? step - 1 : last;
  const float lr = p.lr_table[group * p.lr_table_size + entry];
  p.group_steps[group] = MakeGroupStep(p.betas[group], lr, step);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_MATH_H_
