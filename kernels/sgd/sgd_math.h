#ifndef BRIGADE_KERNELS_SGD_SGD_MATH_H_
#define BRIGADE_KERNELS_SGD_SGD_MATH_H_

// The update of one parameter by SGD with momentum, for CUDA, SIMD and scalar code alike.
//
// Source       Sutskever et al. 2013, in the form with dampening that PyTorch documents.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One piece of the parameters with its optimizer state; a flat range is a list of one. Device memory.
struct SgdSegment {
  float* param;      // [size] fp32 master
  float* momentum;   // [size] momentum buffer; null in a group without momentum
  const void* grad;  // [size] of SgdOptions::grad_dtype
  // [size] of SgdOptions::copy_dtype: the rounded new parameter; null without one.
  void* param_copy;
  int64_t size;
  int32_t group;  // index of its parameter group
};

inline constexpr int kMaxSgdGroups = 128;

// A group's constants that do not change from step to step.
struct SgdGroupConstants {
  float momentum;
  float one_minus_dampening;  // 1 - dampening, rounded once from double
  float weight_decay;
  int32_t nesterov;
};

// All that a call passes beside its segments.
struct SgdParameters {
  const StepState* state;
  const GroupStep* group_steps;
  bool decoupled;
  SgdGroupConstants groups[kMaxSgdGroups];
};

// The constants of one parameter group in one step.
struct SgdCoefficients {
  float multiplier;  // of the gradient: unscaling and clipping
  float momentum;
  float one_minus_dampening;
  float l2;            // weight decay that enters the gradient
  float decay_factor;  // factor on the parameter: 1 - lr * decoupled weight decay
  float lr;
  bool nesterov;
};

// Reads device memory: only where the kernel runs.
BRIGADE_INLINE SgdCoefficients MakeSgdCoefficients(const SgdParameters& parameters,
                                                   int32_t group_index) {
  const SgdGroupConstants& group = parameters.groups[group_index];
  SgdCoefficients c;
  c.multiplier = parameters.state->grad_multiplier;
  c.momentum = group.momentum;
  // The first gradient enters the momentum undampened.
  c.one_minus_dampening = parameters.state->step == 1 ? 1.0f : group.one_minus_dampening;
  c.lr = parameters.group_steps[group_index].lr;
  c.l2 = group.weight_decay;
  c.decay_factor = precision::Fma(-c.lr, group.weight_decay, 1.0f);
  c.nesterov = group.nesterov != 0;
  return c;
}

// The kind of update, fixed for a whole segment.
template <bool kL2_, bool kMomentum_>
struct SgdVariant {
  static constexpr bool kL2 = kL2_;              // c.l2 applies, else c.decay_factor
  static constexpr bool kMomentum = kMomentum_;  // else `momentum` is not touched
};

// Calls run(SgdVariant) with the variant of one segment.
template <typename Run>
BRIGADE_INLINE void VisitSgdVariant(bool decoupled, bool has_momentum, const Run& run) {
  if (decoupled) {
    has_momentum ? run(SgdVariant<false, true>()) : run(SgdVariant<false, false>());
  } else {
    has_momentum ? run(SgdVariant<true, true>()) : run(SgdVariant<true, false>());
  }
}

template <typename Variant>
BRIGADE_INLINE void SgdElement(const SgdCoefficients& c, float gradient, float& param,
                               [[maybe_unused]] float& momentum) {
  using precision::Fma;
  using precision::Mul;
  float g = Mul(gradient, c.multiplier);
  if constexpr (Variant::kL2) g = Fma(c.l2, param, g);
  if constexpr (Variant::kMomentum) {
    momentum = Fma(c.momentum, momentum, Mul(c.one_minus_dampening, g));
    g = c.nesterov ? Fma(c.momentum, momentum, g) : momentum;
  }
  if constexpr (!Variant::kL2) param = Mul(param, c.decay_factor);
  param = Fma(-c.lr, g, param);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SGD_SGD_MATH_H_
