#ifndef BRIGADE_KERNELS_STEP_CONTROL_ONE_STEP_H_
#define BRIGADE_KERNELS_STEP_CONTROL_ONE_STEP_H_

// Where the values of an update's step come from: device memory, written by StepControl, or numbers
// that the host passes. The parameters of the optimizers (adam_math.h, sgd_math.h) hold either.

#include <cstdint>

#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"

namespace brigade::kernels {

// A step whose numbers the host knows: no StepState and no GroupStep in device memory, no skip
// flag.
struct OneStep {
  // The updates made, this one included: 1 in the first.
  int64_t step = 1;
  // [groups], host memory, read by the call that gets it: the learning rate of each group.
  const float* lr = nullptr;
  // The factor that unscales and clips the gradients.
  float grad_multiplier = 1.0f;
};

// Whether an update's parameters name a step: device memory for both of its parts, or numbers that
// someone filled in. Reads no device memory.
template <typename Parameters>
BRIGADE_HOST_DEVICE bool NamesStep(const Parameters& parameters) {
  if (parameters.state == nullptr && parameters.group_steps == nullptr) return parameters.step >= 1;
  return parameters.state != nullptr && parameters.group_steps != nullptr;
}

// Whether the step changes nothing. Reads device memory.
template <typename Parameters>
BRIGADE_INLINE bool SkipsStep(const Parameters& parameters) {
  return parameters.state != nullptr && parameters.state->skip != 0;
}

// What is wrong with the values of a step that is not skipped. Reads device memory; the parameters
// name a step.
template <typename Policy>
BRIGADE_INLINE StepError FindStepError(const typename Policy::Parameters& parameters,
                                       int32_t group) {
  if (parameters.state == nullptr) return StepError::kNone;
  if (parameters.state->step < 1) return StepError::kStateNotFilled;
  if (!Policy::IsFilled(parameters.group_steps[group])) return StepError::kGroupStepNotFilled;
  return StepError::kNone;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_ONE_STEP_H_
