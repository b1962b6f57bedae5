#ifndef BRIGADE_KERNELS_LION_LION_MATH_H_
#define BRIGADE_KERNELS_LION_LION_MATH_H_

// The update of one parameter by Lion, for CUDA, SIMD and scalar code alike.
//
// Source       Chen et al. 2023 (arXiv 2302.06675), algorithm 2.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One piece of the parameters with its optimizer state; a flat range is a list of one. Device
// memory.
struct LionSegment {
  // [size], the fp32 master.
  float* param;
  // [size], the moving average of gradients, exp_avg.
  float* m;
  // [size] of LionOptions::grad_dtype.
  const void* grad;
  // [size] of LionOptions::copy_dtype: the rounded new parameter; null without one.
  void* param_copy;
  int64_t size;
  // The index of the parameter group.
  int32_t group;
};

inline constexpr int kMaxLionGroups = 128;

// A group's constants that do not change from step to step.
struct LionGroupConstants {
  // 1 - beta is rounded once, from double.
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float weight_decay;
};

// All that a call passes beside its segments; lion_parameters.h fills it.
struct LionParameters {
  // Device memory, both; or both are null, and the step is that of the numbers below.
  const StepState* state;
  const GroupStep* group_steps;
  // Counted from 1; 0 means that nobody filled this.
  int64_t step;
  float grad_multiplier;
  // The learning rates of so many groups.
  int32_t one_step_groups;
  float lr[kMaxOneStepGroups];
  LionGroupConstants groups[kMaxLionGroups];
};

// The constants of one parameter group in one step.
struct LionCoefficients {
  // The factor on the gradient, which unscales and clips it.
  float multiplier;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  // The factor on the parameter: 1 - lr * weight decay.
  float decay_factor;
  float lr;
};

struct LionElement {
  // The array m.
  static constexpr int kStates = 1;

  static BRIGADE_INLINE void Update(const LionCoefficients& c, float gradient, float& param,
                                    float* state) {
    using precision::Fma;
    using precision::Mul;
    float& m = state[0];
    const float g = Mul(gradient, c.multiplier);
    const float direction = Fma(c.beta1, m, Mul(c.one_minus_beta1, g));
    m = Fma(c.beta2, m, Mul(c.one_minus_beta2, g));
    // Zeros and NaN are their own signs: an element without gradients stays, NaN is not lost.
    float sign = direction > 0.0f ? 1.0f : direction;
    sign = direction < 0.0f ? -1.0f : sign;
    param = Fma(-c.lr, sign, Mul(param, c.decay_factor));
  }
};

// Lion for the loops that optimizers share (kernels/internal/update_tile.h).
struct LionPolicy {
  using Segment = LionSegment;
  using Parameters = LionParameters;
  // Segments of 48 bytes, with their first tiles and the groups' constants, fill a launch's
  // arguments.
  static constexpr int kMaxSegments = 536;
  static constexpr int kStates = 1;

  // What the step fixes for a group, where its numbers are the host's.
  static BRIGADE_INLINE GroupStep OwnStep(const LionParameters& parameters, int32_t group) {
    if (group >= parameters.one_step_groups) return {};
    return {parameters.lr[group], parameters.lr[group], 1.0f};
  }

  // The update reads the learning rate alone, which may be 0 in a step of StepControl's: that has
  // corrections, of a group that needs none too.
  static BRIGADE_INLINE bool IsFilled(const GroupStep& step) {
    return step.lr != 0.0f || step.inv_sqrt_correction != 0.0f;
  }

  static BRIGADE_INLINE float* State(const LionSegment& s, int) { return s.m; }

  static BRIGADE_INLINE LionCoefficients MakeCoefficients(const LionParameters& parameters,
                                                          const LionSegment& s) {
    const LionGroupConstants& group = parameters.groups[s.group];
    LionCoefficients c;
    c.multiplier = MultiplierOf(parameters);
    c.lr = StepOf<LionPolicy>(parameters, s.group).lr;
    c.beta1 = group.beta1;
    c.one_minus_beta1 = group.one_minus_beta1;
    c.beta2 = group.beta2;
    c.one_minus_beta2 = group.one_minus_beta2;
    c.decay_factor = precision::Fma(-c.lr, group.weight_decay, 1.0f);
    return c;
  }

  template <typename Run>
  static BRIGADE_INLINE void VisitElement(const LionParameters&, const LionSegment&,
                                          const Run& run) {
    run(LionElement());
  }
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LION_LION_MATH_H_
