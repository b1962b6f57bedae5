#ifndef BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_MATH_H_
#define BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_MATH_H_

// What 0/1 Adam does beside Adam, for CUDA and the CPU alike.
//
// Source       Lu et al. 2022 (arXiv 2202.06009), algorithm 1; tests/spec/stages.h.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// A piece of the gradients that ranks have exchanged, with its second moments. Device memory.
struct ZeroOneMask {
  const float* second_moment;
  float* gradient;
  int64_t size;
};

// A piece of the sum of moves that ranks have exchanged. Device memory.
struct ZeroOneMessage {
  float* message;
  int64_t size;
  // The index of the parameter group.
  int32_t group;
};

// A copy; from null, of zeros. Device memory.
struct ZeroOneCopy {
  const float* source;
  float* target;
  int64_t size;
};

// What a parameter group has, device memory; zeros at first.
struct ZeroOneNumbers {
  // The sum of the rates of the steps since the last meeting.
  float rates;
  // Of a step that meets: with which factors a first moment and a gradient enter the message.
  float of_moment, of_gradient;
  // From the message to the new first moment.
  float inverse;
  // With which factor a first moment is added to the moves.
  float moved;
};

enum class ZeroOneCall : int32_t {
  // Before what is exchanged in a meeting is made: sets of_moment and of_gradient.
  kSend,
  // Behind the exchange: sets inverse and the step of its update; rates become 0.
  kMeet,
  // In a step between meetings: sets moved, 0 if the step is skipped, and counts its rate.
  kLocal,
  // As kMeet, between steps: the state's skip flag is then whether there has been no rate since the
  // last meeting, and its multiplier is 1.
  kSave,
};

// All that a call passes; zero_one_adam_parameters.h fills it for a step of the host's. What it
// points to is device memory.
struct ZeroOneRates {
  ZeroOneCall call;
  int32_t groups;
  // The decision of the step, and what it fixes for the groups: [groups]. Null, both, in a step of
  // the host's, which kSave has none of.
  StepState* state;
  const GroupStep* group_steps;
  // [2][groups]: beta1, 1 - beta1.
  const float* betas;
  // [groups], both.
  ZeroOneNumbers* numbers;
  GroupStep* meeting;
  // The step of the host's (OneStep, one_step.h).
  int64_t step = 0;
  float grad_multiplier = 0.0f;
  float lr[kMaxOneStepGroups] = {};
};

// Whether a call names a step. Reads no device memory.
BRIGADE_INLINE bool NamesRates(const ZeroOneRates& r) {
  const bool may_be_hosts = r.call != ZeroOneCall::kSave && r.groups <= kMaxOneStepGroups;
  return NamesStep(r) && (r.state != nullptr || may_be_hosts);
}

// What is wrong with the values of a step, also of a skipped one.
BRIGADE_INLINE StepError FindRatesError(const ZeroOneRates& r) {
  if (!NamesRates(r)) return StepError::kNoStep;
  if (r.state == nullptr || r.call == ZeroOneCall::kSave || SkipsStep(r)) return StepError::kNone;
  if (r.state->step < 1) return StepError::kStateNotFilled;
  for (int32_t group = 0; group < r.groups; ++group) {
    if (r.group_steps[group].inv_sqrt_correction == 0.0f) return StepError::kGroupStepNotFilled;
  }
  return StepError::kNone;
}

// One thread does all of it. After an error nothing has changed.
BRIGADE_INLINE StepError CountRates(const ZeroOneRates& r) {
  using precision::Mul;
  const StepError error = FindRatesError(r);
  if (error != StepError::kNone) return error;
  const bool saves = r.call == ZeroOneCall::kSave;
  // A skipped step has no rates.
  const bool has_rates = !saves && !SkipsStep(r);
  bool any = false;
  for (int32_t group = 0; group < r.groups; ++group) {
    ZeroOneNumbers& n = r.numbers[group];
    float lr = 0.0f;
    if (has_rates) lr = r.state == nullptr ? r.lr[group] : r.group_steps[group].lr;
    const float rates = precision::Add(n.rates, lr);
    if (r.call == ZeroOneCall::kSend) {
      n.of_moment = Mul(lr, r.betas[group]);
      n.of_gradient = Mul(Mul(lr, r.betas[r.groups + group]), MultiplierOf(r));
    } else if (r.call == ZeroOneCall::kLocal) {
      n.moved = lr;
      n.rates = rates;
    } else {
      n.inverse = rates > 0.0f ? precision::Div(1.0f, rates) : 0.0f;
      r.meeting[group] = {rates, rates, 1.0f};
      any = any || rates > 0.0f;
      if (has_rates || saves) n.rates = 0.0f;
    }
  }
  if (!saves) return StepError::kNone;
  r.state->skip = any ? 0 : 1;
  r.state->grad_multiplier = 1.0f;
  return StepError::kNone;
}

// Operations on each element of a list: Begin reads what the segment has for all of them.
struct ZeroOneMaskOperation {
  using Segment = ZeroOneMask;
  BRIGADE_INLINE bool Begin(const Segment&) const { return true; }
  BRIGADE_INLINE void Visit(const Segment& s, bool, int64_t i) const {
    if (s.second_moment[i] == 0.0f) s.gradient[i] = 0.0f;
  }
};

struct ZeroOneReceiveOperation {
  using Segment = ZeroOneMessage;
  const ZeroOneNumbers* numbers;
  BRIGADE_INLINE float Begin(const Segment& s) const { return numbers[s.group].inverse; }
  BRIGADE_INLINE void Visit(const Segment& s, float inverse, int64_t i) const {
    s.message[i] = precision::Mul(s.message[i], inverse);
  }
};

struct ZeroOneTakeOperation {
  using Segment = ZeroOneCopy;
  const StepState* state;
  BRIGADE_INLINE bool Begin(const Segment&) const { return state->skip == 0; }
  BRIGADE_INLINE void Visit(const Segment& s, bool takes, int64_t i) const {
    if (takes) s.target[i] = s.source == nullptr ? 0.0f : s.source[i];
  }
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_MATH_H_
