#ifndef BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_PARAMETERS_H_
#define BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_PARAMETERS_H_

// The parameters of the raw launcher (step_control_cuda.h) and of the CPU (step_control_cpu.h) from
// options, in plain C++. On the host.

#include <cstdint>

#include "brigade/kernels/step_control/step_control_math.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

// What happens on an overflow when the loss scale is at its minimum.
enum class AtMinimum {
  // stuck_at_minimum is set: every later step is skipped until the owner writes a new state.
  kError,
  // The scale stays, the step is skipped, and training goes on.
  kClamp,
};

// Dynamic loss scaling with DeepSpeed's names and rule.
struct LossScaleOptions {
  // If false, the scale stays as it is, and overflows only skip steps.
  bool dynamic = true;
  // In [2^-60, 2^126]; if dynamic, between min_scale and max_scale.
  float initial_scale = 65536.0f;
  // In [2^-60, 2^126].
  float min_scale = 1.0f;
  // The scale does not grow beyond it.
  float max_scale = 0x1p126f;
  // The steps without an overflow before the scale doubles; at least 1.
  int64_t window = 1000;
  // The overflows before the scale is halved; at least 1.
  int32_t hysteresis = 2;
  // Whether a good step restores the hysteresis.
  bool consecutive_hysteresis = false;
  AtMinimum at_minimum = AtMinimum::kError;
};

// The state before the first step. Copy it into device memory on every rank.
inline StepState InitialStepState(const LossScaleOptions& options) {
  StepState state = {};
  state.last_overflow = -1;
  state.loss_scale = options.initial_scale;
  state.hysteresis = options.hysteresis;
  return state;
}

// Parameters without clipping, for gradients that are a sum, with the overflow check: the caller
// sets stats and ranks, state, group_steps, lr_table and its size, and what else it wants. There
// are 1 to kMaxStepGroups groups; all values are in their ranges.
inline StepParameters MakeStepParameters(const LossScaleOptions& scale, const StepBetas* betas,
                                         int32_t groups) {
  StepParameters parameters = {};
  parameters.window = scale.window;
  parameters.divisor = 1.0;
  parameters.max_grad_norm = __builtin_huge_val();
  parameters.min_scale = scale.min_scale;
  parameters.max_scale = scale.max_scale;
  parameters.hysteresis = scale.hysteresis;
  parameters.groups = groups;
  parameters.dynamic = scale.dynamic;
  parameters.consecutive_hysteresis = scale.consecutive_hysteresis;
  parameters.error_at_minimum = scale.at_minimum == AtMinimum::kError;
  parameters.check_overflow = true;
  for (int32_t i = 0; i < groups; ++i) parameters.betas[i] = betas[i];
  return parameters;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_PARAMETERS_H_
