#ifndef BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_CPU_H_
#define BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_CPU_H_

#include <cstdint>

#include "brigade/kernels/step_control/step_control_math.h"

namespace brigade::kernels {

// StepControl (step_control.h) at once, in the calling thread and without checks of the arguments.
// A state without a loss scale, as zeros are, decides no step: the update that follows is
// StepError::kStateNotFilled.
inline void StepControlCpu(const StepParameters& parameters) {
  DecideStep(parameters);
  for (int32_t group = 0; group < parameters.groups; ++group) DecideGroup(parameters, group);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_CPU_H_
