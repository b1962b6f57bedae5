#ifndef BRIGADE_KERNELS_ADAM_ADAM_PARAMETERS_H_
#define BRIGADE_KERNELS_ADAM_ADAM_PARAMETERS_H_

// The parameters of the raw launcher (adam_cuda.h) and of the CPU's loop (adam_cpu.h) from
// hyper-parameters, in plain C++. On the host.

#include <cstdint>

#include "brigade/kernels/adam/adam_math.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_control_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/weight_decay.h"

namespace brigade::kernels {

// Hyper-parameters of one parameter group.
struct AdamGroup {
  // In [0, 1).
  double beta1 = 0.9;
  // In [0, 1]: with 1 the second moment stays as it is.
  double beta2 = 0.999;
  // Greater than 0, also as a float.
  double eps = 1e-8;
  // At least 0.
  double weight_decay = 0.0;
};

// The parameters of every step of these groups, of which there are 1 to kMaxAdamGroups with values
// in their ranges. `state` and `group_steps` [count] are device memory that StepControl writes.
inline AdamParameters MakeAdamParameters(const AdamGroup* groups, int64_t count,
                                         WeightDecayMode mode, const StepState* state,
                                         const GroupStep* group_steps) {
  AdamParameters parameters = {};
  parameters.state = state;
  parameters.group_steps = group_steps;
  parameters.decoupled = mode == WeightDecayMode::kDecoupled;
  for (int64_t i = 0; i < count; ++i) {
    AdamGroupConstants& constants = parameters.groups[i];
    constants.beta1 = static_cast<float>(groups[i].beta1);
    constants.one_minus_beta1 = static_cast<float>(1.0 - groups[i].beta1);
    constants.beta2 = static_cast<float>(groups[i].beta2);
    constants.one_minus_beta2 = static_cast<float>(1.0 - groups[i].beta2);
    constants.eps = static_cast<float>(groups[i].eps);
    constants.weight_decay = static_cast<float>(groups[i].weight_decay);
  }
  return parameters;
}

// The parameters of one step whose numbers the host knows; nothing of it is in device memory. The
// bias corrections are those of StepControl, bit by bit. For up to kMaxOneStepGroups groups: with
// more, without rates, or a step below 1, launcher and loop refuse the parameters.
inline AdamParameters MakeAdamParameters(const AdamGroup* groups, int64_t count,
                                         WeightDecayMode mode, const OneStep& step) {
  if (count > kMaxOneStepGroups || step.lr == nullptr) return {};
  AdamParameters parameters = MakeAdamParameters(groups, count, mode, nullptr, nullptr);
  parameters.step = step.step;
  parameters.grad_multiplier = step.grad_multiplier;
  for (int64_t i = 0; i < count; ++i) {
    parameters.steps[i] = MakeGroupStep({groups[i].beta1, groups[i].beta2}, step.lr[i], step.step);
  }
  return parameters;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM_ADAM_PARAMETERS_H_
