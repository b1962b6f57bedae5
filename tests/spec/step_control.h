#ifndef BRIGADE_TESTS_SPEC_STEP_CONTROL_H_
#define BRIGADE_TESTS_SPEC_STEP_CONTROL_H_

// The executable specification, 4 of 6: what a step decides before it updates anything.
//
// Loss scaling is the rule of DeepSpeed 0.19 for ZeRO. Clipping is by global norm (Pascanu et al.
// 2013).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/tests/spec/optimizers.h"
#include "brigade/tests/spec/sums.h"

namespace brigade::spec {

struct LossScaleRule {
  bool dynamic = true;
  int64_t window = 1000;
  int32_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  float min_scale = 1.0f;
  float max_scale = 0x1p126f;
  // False: stay at the minimum and go on.
  bool error_at_minimum = true;
};

struct StepRule {
  LossScaleRule loss_scale = {};
  double divisor = 1.0;       // ranks * micro-batches, for a mean
  double norm_divisor = 0.0;  // of the norm; 0: the same
  double clip = std::numeric_limits<double>::infinity();
  bool check_overflow = true;
};

// Lives on the device, the same on every rank.
struct StepState {
  int64_t step = 0;       // updates made
  int64_t iteration = 0;  // updates tried
  int64_t last_overflow = -1;
  float loss_scale = 65536.0f;
  int32_t hysteresis = 2;
  bool stuck_at_minimum = false;
  bool skip = false;
  float multiplier = 0.0f;
  double grad_norm = 0.0;
};

// An overflow (or none) moves the scale for the next iteration.
inline void UpdateLossScale(const LossScaleRule& rule, bool overflow, StepState& state) {
  if (rule.dynamic && overflow) {
    if (rule.hysteresis == 1 || state.hysteresis == 1) {
      if (state.loss_scale == rule.min_scale && rule.error_at_minimum)
        state.stuck_at_minimum = true;
      state.loss_scale = std::max(state.loss_scale / 2.0f, rule.min_scale);
    } else {
      state.hysteresis -= 1;
    }
    state.last_overflow = state.iteration;
  }
  if (rule.dynamic && !overflow) {
    if (rule.consecutive_hysteresis) state.hysteresis = rule.hysteresis;
    const int64_t since = state.iteration - state.last_overflow - 1;
    if (since > 0 && since % rule.window == 0) {
      state.loss_scale = std::min(state.loss_scale * 2.0f, rule.max_scale);
      if (!rule.consecutive_hysteresis) state.hysteresis = rule.hysteresis;
    }
  }
  state.iteration += 1;
}

// x^n by repeated squaring, from the lowest bit of n: the order fixes the bits.
inline double Power(double x, int64_t n) {
  double result = 1.0;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) result = result * x;
    x = x * x;
  }
  return result;
}

inline GroupStep MakeGroupStep(double beta1, double beta2, float lr, int64_t step) {
  const double correction1 = 1.0 - Power(beta1, step);
  const double correction2 = 1.0 - Power(beta2, step);
  return {lr, static_cast<float>(lr / correction1),
          static_cast<float>(1.0 / std::sqrt(correction2))};
}

// `ranks` holds each rank's statistics of its own part of the gradients.
inline void ControlStep(const std::vector<GradStats>& ranks, const StepRule& rule,
                        StepState& state) {
  double sum = 0.0;
  bool finite = true;
  for (const GradStats& rank : ranks) {
    sum = sum + rank.sum_of_squares;
    finite = finite && rank.all_finite;
  }
  // With the scale that was in effect during backward.
  const double divisor = state.loss_scale * rule.divisor;
  const double norm_divisor =
      rule.norm_divisor > 0 ? state.loss_scale * rule.norm_divisor : divisor;
  state.grad_norm = std::sqrt(sum) / norm_divisor;
  const double clipped = std::min(1.0, rule.clip / (state.grad_norm + 1e-6));
  const bool overflow = rule.check_overflow && !finite;

  // Once stuck, nothing is updated until somebody resets the state.
  UpdateLossScale(rule.loss_scale, overflow, state);
  state.skip = overflow || state.stuck_at_minimum;
  state.multiplier = state.skip ? 0.0f : static_cast<float>(clipped / divisor);
  if (!state.skip) state.step += 1;
}

// The learning rate of the update that `state` decided on: its table ends with a value that stays.
inline float LearningRate(const std::vector<float>& table, const StepState& state) {
  const int64_t last = static_cast<int64_t>(table.size()) - 1;
  return table[std::min(state.step - 1, last)];
}

}  // namespace brigade::spec

#endif  // BRIGADE_TESTS_SPEC_STEP_CONTROL_H_
