#ifndef BRIGADE_KERNELS_LAMB_LAMB_PARAMETERS_H_
#define BRIGADE_KERNELS_LAMB_LAMB_PARAMETERS_H_

// The parameters of the raw launcher (lamb_cuda.h) and of the CPU's loops (lamb_cpu.h) from
// hyper-parameters, in plain C++. On the host.

#include <cstdint>

#include "brigade/kernels/lamb/lamb_math.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_control_math.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

// Hyper-parameters of one parameter group.
struct LambGroup {
  // In [0, 1).
  double beta1 = 0.9;
  // In [0, 1).
  double beta2 = 0.999;
  // Greater than 0, also as a float.
  double eps = 1e-6;
  // At least 0; part of the update whose norm counts.
  double weight_decay = 0.0;
  // Bounds of the trust ratio, at least 0, the first at most the second.
  double min_trust = 0.01;
  double max_trust = 10.0;
};

// The parameters of every step of these groups, of which there are 1 to kMaxLambGroups with values
// in their ranges. `state` and `group_steps` [count] are device memory that StepControl writes.
inline LambParameters MakeLambParameters(const LambGroup* groups, int64_t count,
                                         const StepState* state, const GroupStep* group_steps) {
  LambParameters parameters = {};
  parameters.state = state;
  parameters.group_steps = group_steps;
  for (int64_t i = 0; i < count; ++i) {
    LambGroupConstants& constants = parameters.groups[i];
    constants.beta1 = static_cast<float>(groups[i].beta1);
    constants.one_minus_beta1 = static_cast<float>(1.0 - groups[i].beta1);
    constants.beta2 = static_cast<float>(groups[i].beta2);
    constants.one_minus_beta2 = static_cast<float>(1.0 - groups[i].beta2);
    constants.eps = static_cast<float>(groups[i].eps);
    constants.weight_decay = static_cast<float>(groups[i].weight_decay);
    constants.min_trust = static_cast<float>(groups[i].min_trust);
    constants.max_trust = static_cast<float>(groups[i].max_trust);
  }
  return parameters;
}

// The parameters of one step whose numbers the host knows; nothing of it is in device memory. The
// bias corrections are those of StepControl, bit by bit. For up to kMaxOneStepGroups groups: with
// more, without rates, or a step below 1, launcher and loops refuse the parameters.
inline LambParameters MakeLambParameters(const LambGroup* groups, int64_t count,
                                         const OneStep& step) {
  if (count > kMaxOneStepGroups || step.lr == nullptr) return {};
  LambParameters parameters = MakeLambParameters(groups, count, nullptr, nullptr);
  parameters.step = step.step;
  parameters.grad_multiplier = step.grad_multiplier;
  for (int64_t i = 0; i < count; ++i) {
    parameters.steps[i] = MakeGroupStep({groups[i].beta1, groups[i].beta2}, step.lr[i], step.step);
  }
  return parameters;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LAMB_LAMB_PARAMETERS_H_
