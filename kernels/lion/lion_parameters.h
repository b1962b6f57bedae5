#ifndef BRIGADE_KERNELS_LION_LION_PARAMETERS_H_
#define BRIGADE_KERNELS_LION_LION_PARAMETERS_H_

// The parameters of the raw launcher (lion_cuda.h) and of the CPU's loop (lion_cpu.h) from
// hyper-parameters, in plain C++. On the host.

#include <cstdint>

#include "brigade/kernels/lion/lion_math.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

// Hyper-parameters of one parameter group; the defaults are the paper's.
struct LionGroup {
  // Of the momentum in the direction of a step; in [0, 1).
  double beta1 = 0.9;
  // Of the momentum that is kept; in [0, 1).
  double beta2 = 0.99;
  // At least 0, decoupled.
  double weight_decay = 0.0;
};

// The parameters of every step of these groups, of which there are 1 to kMaxLionGroups with values
// in their ranges. `state` and `group_steps` [count] are device memory that StepControl writes.
inline LionParameters MakeLionParameters(const LionGroup* groups, int64_t count,
                                         const StepState* state, const GroupStep* group_steps) {
  LionParameters parameters = {};
  parameters.state = state;
  parameters.group_steps = group_steps;
  for (int64_t i = 0; i < count; ++i) {
    LionGroupConstants& constants = parameters.groups[i];
    constants.beta1 = static_cast<float>(groups[i].beta1);
    constants.one_minus_beta1 = static_cast<float>(1.0 - groups[i].beta1);
    constants.beta2 = static_cast<float>(groups[i].beta2);
    constants.one_minus_beta2 = static_cast<float>(1.0 - groups[i].beta2);
    constants.weight_decay = static_cast<float>(groups[i].weight_decay);
  }
  return parameters;
}

// The parameters of one step whose numbers the host knows; nothing of it is in device memory. For
// up to kMaxOneStepGroups groups: with more, without rates, or with a step below 1, launcher and
// loop refuse the parameters.
inline LionParameters MakeLionParameters(const LionGroup* groups, int64_t count,
                                         const OneStep& step) {
  if (count > kMaxOneStepGroups || step.lr == nullptr) return {};
  LionParameters parameters = MakeLionParameters(groups, count, nullptr, nullptr);
  parameters.step = step.step;
  parameters.grad_multiplier = step.grad_multiplier;
  parameters.one_step_groups = static_cast<int32_t>(count);
  for (int64_t i = 0; i < count; ++i) parameters.lr[i] = step.lr[i];
  return parameters;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LION_LION_PARAMETERS_H_
