#ifndef BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_PARAMETERS_H_
#define BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_PARAMETERS_H_

// The parameters of the raw launchers (adafactor_cuda.h) and of the CPU's loops (adafactor_cpu.h)
// from hyper-parameters, in plain C++. On the host.

#include <cstdint>

#include "brigade/kernels/adafactor/adafactor_math.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

// Hyper-parameters of one parameter group.
struct AdafactorGroup {
  // In [0, 1); 0: there is no first moment.
  double beta1 = 0.0;
  // At least 0, decoupled.
  double weight_decay = 0.0;
};

// Of all groups; names and defaults are those of transformers' Adafactor.
struct AdafactorSettings {
  // Added to the squares of gradients: positive as a float.
  double eps1 = 1e-30;
  // What the root mean square of a tensor counts at least; 0 or more.
  double eps2 = 1e-3;
  // The root mean square that an update has at most; positive.
  double clip_threshold = 1.0;
  // Means of squares take step^decay_rate of a step's; -10 to 0.
  double decay_rate = -0.8;
  // A tensor's rate is multiplied by the root mean square of its parameters.
  bool scale_parameter = true;
  // The rate is the smaller one of 0.01 and 1 / sqrt(step), instead of the group's; with
  // warmup_init that of 1e-6 * step and 1 / sqrt(step).
  bool relative_step = true;
  bool warmup_init = false;
};

// The parameters of every step of these groups, of which there are 1 to kMaxAdafactorGroups with
// values in their ranges. `state` and `group_steps` [count] are device memory that StepControl
// writes.
inline AdafactorParameters MakeAdafactorParameters(const AdafactorGroup* groups, int64_t count,
                                                   const AdafactorSettings& settings,
                                                   const StepState* state,
                                                   const GroupStep* group_steps) {
  AdafactorParameters parameters = {};
  parameters.state = state;
  parameters.group_steps = group_steps;
  parameters.eps1 = settings.eps1;
  parameters.eps2 = settings.eps2;
  parameters.clip_threshold = settings.clip_threshold;
  parameters.decay_rate = settings.decay_rate;
  parameters.scale_parameter = settings.scale_parameter ? 1 : 0;
  parameters.relative_step = settings.relative_step ? 1 : 0;
  parameters.warmup_init = settings.warmup_init ? 1 : 0;
  for (int64_t i = 0; i < count; ++i) {
    parameters.groups[i] = {static_cast<float>(groups[i].beta1),
                            static_cast<float>(1.0 - groups[i].beta1),
                            static_cast<float>(groups[i].weight_decay)};
  }
  return parameters;
}

// The parameters of one step whose numbers the host knows; nothing of it is in device memory. For
// up to kMaxOneStepGroups groups: with more, without rates, or with a step below 1, launcher and
// loop refuse the parameters.
inline AdafactorParameters MakeAdafactorParameters(const AdafactorGroup* groups, int64_t count,
                                                   const AdafactorSettings& settings,
                                                   const OneStep& step) {
  if (count > kMaxOneStepGroups || step.lr == nullptr) return {};
  AdafactorParameters parameters =
      MakeAdafactorParameters(groups, count, settings, nullptr, nullptr);
  parameters.step = step.step;
  parameters.grad_multiplier = step.grad_multiplier;
  parameters.one_step_groups = static_cast<int32_t>(count);
  for (int64_t i = 0; i < count; ++i) parameters.lr[i] = step.lr[i];
  return parameters;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_PARAMETERS_H_
