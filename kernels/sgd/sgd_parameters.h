#ifndef BRIGADE_KERNELS_SGD_SGD_PARAMETERS_H_
#define BRIGADE_KERNELS_SGD_SGD_PARAMETERS_H_

// The parameters of the raw launcher (sgd_cuda.h) and of the CPU's loop (sgd_cpu.h) from
// hyper-parameters, in plain C++. On the host.

#include <cstdint>

#include "brigade/kernels/sgd/sgd_math.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/weight_decay.h"

namespace brigade::kernels {

// Hyper-parameters of one parameter group.
struct SgdGroup {
  // In [0, 1). 0 is plain SGD, whose segments need no momentum buffer.
  double momentum = 0.0;
  // In [0, 1]; 0 with Nesterov.
  double dampening = 0.0;
  // At least 0.
  double weight_decay = 0.0;
  // Needs momentum.
  bool nesterov = false;
};

// The parameters of every step of these groups, of which there are 1 to kMaxSgdGroups with values
// in their ranges. `state` and `group_steps` [count] are device memory that StepControl writes.
inline SgdParameters MakeSgdParameters(const SgdGroup* groups, int64_t count, WeightDecayMode mode,
                                       const StepState* state, const GroupStep* group_steps) {
  SgdParameters parameters = {};
  parameters.state = state;
  parameters.group_steps = group_steps;
  parameters.decoupled = mode == WeightDecayMode::kDecoupled;
  for (int64_t i = 0; i < count; ++i) {
    SgdGroupConstants& constants = parameters.groups[i];
    constants.momentum = static_cast<float>(groups[i].momentum);
    constants.one_minus_dampening = static_cast<float>(1.0 - groups[i].dampening);
    constants.weight_decay = static_cast<float>(groups[i].weight_decay);
    constants.nesterov = groups[i].nesterov ? 1 : 0;
  }
  return parameters;
}

// The parameters of one step whose numbers the host knows; nothing of it is in device memory. For
// up to kMaxOneStepGroups groups: with more, without rates, or with a step below 1, launcher and
// loop refuse the parameters.
inline SgdParameters MakeSgdParameters(const SgdGroup* groups, int64_t count, WeightDecayMode mode,
                                       const OneStep& step) {
  if (count > kMaxOneStepGroups || step.lr == nullptr) return {};
  SgdParameters parameters = MakeSgdParameters(groups, count, mode, nullptr, nullptr);
  parameters.step = step.step;
  parameters.grad_multiplier = step.grad_multiplier;
  parameters.one_step_groups = static_cast<int32_t>(count);
  for (int64_t i = 0; i < count; ++i) parameters.lr[i] = step.lr[i];
  return parameters;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SGD_SGD_PARAMETERS_H_
