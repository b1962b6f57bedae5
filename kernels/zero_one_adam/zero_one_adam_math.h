#ifndef BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_MATH_H_
#define BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_MATH_H_

// What 0/1 Adam does beside Adam, for CUDA and the CPU alike.
//
// Source       Lu et al. 2022 (arXiv 2202.06009), algorithm 1; tests/spec/stages.h.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

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

// All that a call passes. Device memory.
struct ZeroOneRates {
  ZeroOneCall call;
  int32_t groups;
  // The decision of the step.
  StepState* state;
  // [groups].
  const GroupStep* group_steps;
  // [2][groups]: beta1, 1 - beta1.
  const float* betas;
  // [groups], both.
  ZeroOneNumbers* numbers;
  GroupStep* meeting;
};

// One thread does all of it.
BRIGADE_INLINE void CountRates(const ZeroOneRates& r) {
  using precision::Mul;
  const bool saves = r.call == ZeroOneCall::kSave;
  // A skipped step has no rates.
  const bool has_rates = !saves && r.state->skip == 0;
  bool any = false;
  for (int32_t group = 0; group < r.groups; ++group) {
    ZeroOneNumbers& n = r.numbers[group];
    const float lr = has_rates ? r.group_steps[group].lr : 0.0f;
    const float rates = precision::Add(n.rates, lr);
    if (r.call == ZeroOneCall::kSend) {
      n.of_moment = Mul(lr, r.betas[group]);
      n.of_gradient = Mul(Mul(lr, r.betas[r.groups + group]), r.state->grad_multiplier);
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
  if (!saves) return;
  r.state->skip = any ? 0 : 1;
  r.state->grad_multiplier = 1.0f;
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
