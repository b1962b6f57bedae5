#ifndef BRIGADE_KERNELS_ADAM_ADAM_MATH_H_
#define BRIGADE_KERNELS_ADAM_ADAM_MATH_H_

// The update of one parameter by Adam or AdamW, for CUDA, SIMD and scalar code alike.
//
// Source       Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2. epsilon
//              stands outside the bias-corrected root, as in PyTorch.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One piece of the parameters with its optimizer state; a flat range is a list of one. Device
// memory.
struct AdamSegment {
  // [size], the fp32 master.
  float* param;
  // [size], the first moment, exp_avg.
  float* m;
  // [size], the second moment, exp_avg_sq.
  float* v;
  // [size] of AdamOptions::grad_dtype.
  const void* grad;
  // [size] of AdamOptions::copy_dtype: the rounded new parameter; null without one.
  void* param_copy;
  int64_t size;
  // The index of the parameter group.
  int32_t group;
};

inline constexpr int kMaxAdamGroups = 128;

// A group's constants that do not change from step to step.
struct AdamGroupConstants {
  // 1 - beta is rounded once, from double.
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float weight_decay;
};

// All that a call passes beside its segments; adam_parameters.h fills it.
struct AdamParameters {
  // Device memory, both; or both are null, and the step is that of the numbers below.
  const StepState* state;
  const GroupStep* group_steps;
  // Counted from 1; 0 means that nobody filled this.
  int64_t step;
  float grad_multiplier;
  bool decoupled;
  GroupStep steps[kMaxOneStepGroups];
  AdamGroupConstants groups[kMaxAdamGroups];
};

// The constants of one parameter group in one step.
struct AdamCoefficients {
  // The factor on the gradient, which unscales and clips it.
  float multiplier;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  // The weight decay that enters the gradient.
  float l2;
  // The factor on the parameter: 1 - lr * decoupled weight decay.
  float decay_factor;
  float step_size;
  float inv_sqrt_correction;
};

// L2 decay costs a term of the gradient, so it is a compile-time choice: with kL2 false, c.l2 is
// unused.
template <bool kL2>
struct AdamElement {
  // The arrays m and v.
  static constexpr int kStates = 2;

  static BRIGADE_INLINE void Update(const AdamCoefficients& c, float gradient, float& param,
                                    float* state) {
    using precision::Div;
    using precision::Fma;
    using precision::Mul;
    using precision::Sqrt;
    float& m = state[0];
    float& v = state[1];
    float g = Mul(gradient, c.multiplier);
    if constexpr (kL2) g = Fma(c.l2, param, g);
    m = Fma(c.beta1, m, Mul(c.one_minus_beta1, g));
    v = Fma(c.beta2, v, Mul(Mul(c.one_minus_beta2, g), g));
    const float denominator = Fma(Sqrt(v), c.inv_sqrt_correction, c.eps);
    param = Fma(-c.step_size, Div(m, denominator), Mul(param, c.decay_factor));
  }
};

// Adam for the loops that optimizers share (kernels/internal/update_tile.h).
struct AdamPolicy {
  using Segment = AdamSegment;
  using Parameters = AdamParameters;
  // Segments of 56 bytes, with their first tiles and the groups' constants, fill a launch's
  // arguments.
  static constexpr int kMaxSegments = 455;
  static constexpr int kStates = 2;

  // What the step fixes for a group, where its numbers are the host's.
  static BRIGADE_INLINE GroupStep OwnStep(const AdamParameters& parameters, int32_t group) {
    return parameters.steps[group];
  }

  // No real step has 0 here.
  static BRIGADE_INLINE bool IsFilled(const GroupStep& step) {
    return step.inv_sqrt_correction != 0.0f;
  }

  static BRIGADE_INLINE float* State(const AdamSegment& s, int k) { return k == 0 ? s.m : s.v; }

  static BRIGADE_INLINE AdamCoefficients MakeCoefficients(const AdamParameters& parameters,
                                                          const AdamSegment& s) {
    return MakeCoefficients(parameters, s.group);
  }
  static BRIGADE_INLINE AdamCoefficients MakeCoefficients(const AdamParameters& parameters,
                                                          int32_t index) {
    const AdamGroupConstants& group = parameters.groups[index];
    const GroupStep step = StepOf<AdamPolicy>(parameters, index);
    const bool decoupled = parameters.decoupled;
    AdamCoefficients c;
    c.multiplier = MultiplierOf(parameters);
    c.beta1 = group.beta1;
    c.one_minus_beta1 = group.one_minus_beta1;
    c.beta2 = group.beta2;
    c.one_minus_beta2 = group.one_minus_beta2;
    c.eps = group.eps;
    c.l2 = decoupled ? 0.0f : group.weight_decay;
    c.decay_factor = decoupled ? precision::Fma(-step.lr, group.weight_decay, 1.0f) : 1.0f;
    c.step_size = step.step_size;
    c.inv_sqrt_correction = step.inv_sqrt_correction;
    return c;
  }

  template <typename Run>
  static BRIGADE_INLINE void VisitElement(const AdamParameters& parameters, const AdamSegment&,
                                          const Run& run) {
    parameters.decoupled ? run(AdamElement<false>()) : run(AdamElement<true>());
  }
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM_ADAM_MATH_H_
