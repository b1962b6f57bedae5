#ifndef BRIGADE_KERNELS_STEP_CONTROL_ONE_STEP_H_
#define BRIGADE_KERNELS_STEP_CONTROL_ONE_STEP_H_

// Where the values of an update's step come from: device memory, written by StepControl, or numbers
// that the host passes. The parameters of the optimizers (adam_math.h, sgd_math.h) hold either.

#include <cstdint>

#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"

namespace brigade::kernels {

// The groups of such a step: as many as leave the arguments of a launch for few segments below the
// 4 KiB that every driver takes.
inline constexpr int kMaxOneStepGroups = 32;

// A step whose numbers the host knows: no StepState and no GroupStep in device memory, no skip
// flag.
struct OneStep {
  // The updates made, this one included: 1 in the first.
  int64_t step = 1;
  // The learning rate of each group: [groups], at most kMaxOneStepGroups; host memory, read by the
  // call that gets it.
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

// Whether a step of the host's, if it is one, has numbers for the groups of all segments. Reads no
// device memory.
template <typename Policy, typename Segment>
bool HasOwnSteps(const typename Policy::Parameters& parameters, const Segment* segments,
                 int64_t count) {
  if (parameters.state != nullptr) return true;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t group = segments[i].group;
    if (group < 0 || group >= kMaxOneStepGroups) return false;
    if (!Policy::IsFilled(Policy::OwnStep(parameters, group))) return false;
  }
  return true;
}

// Whether the step changes nothing. Reads device memory.
template <typename Parameters>
BRIGADE_INLINE bool SkipsStep(const Parameters& parameters) {
  return parameters.state != nullptr && parameters.state->skip != 0;
}

// The factor on the gradients. Reads device memory.
template <typename Parameters>
BRIGADE_INLINE float MultiplierOf(const Parameters& parameters) {
  return parameters.state == nullptr ? parameters.grad_multiplier
                                     : parameters.state->grad_multiplier;
}

// What the step fixes for a group. Reads device memory.
template <typename Policy>
BRIGADE_INLINE GroupStep StepOf(const typename Policy::Parameters& parameters, int32_t group) {
  if (parameters.state == nullptr) return Policy::OwnStep(parameters, group);
  return parameters.group_steps[group];
}

// What is wrong with the values of a step that is not skipped. Reads device memory; the parameters
// name a step.
template <typename Policy>
BRIGADE_INLINE StepError FindStepError(const typename Policy::Parameters& parameters,
                                       int32_t group) {
  if (parameters.state == nullptr && group >= kMaxOneStepGroups) {
    return StepError::kGroupStepNotFilled;
  }
  if (parameters.state != nullptr && parameters.state->step < 1) return StepError::kStateNotFilled;
  return Policy::IsFilled(StepOf<Policy>(parameters, group)) ? StepError::kNone
                                                             : StepError::kGroupStepNotFilled;
}

// The same for any step: nothing is wrong with the values of a skipped one. Reads device memory.
template <typename Policy>
BRIGADE_INLINE StepError FindErrorOfAnyStep(const typename Policy::Parameters& parameters,
                                            int32_t group) {
  if (!NamesStep(parameters)) return StepError::kNoStep;
  if (SkipsStep(parameters)) return StepError::kNone;
  return FindStepError<Policy>(parameters, group);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_ONE_STEP_H_
