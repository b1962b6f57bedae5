#ifndef BRIGADE_KERNELS_SGD_SGD_MATH_H_
#define BRIGADE_KERNELS_SGD_SGD_MATH_H_

// The update of one parameter by SGD with momentum, for CUDA, SIMD and scalar code alike.
//
// Source       Sutskever et al. 2013, in the form with dampening that PyTorch documents.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One piece of the parameters with its optimizer state; a flat range is a list of one. Device
// memory.
struct SgdSegment {
  // [size], the fp32 master.
  float* param;
  // [size], the momentum buffer; null in a group without momentum.
  float* momentum;
  // [size] of SgdOptions::grad_dtype.
  const void* grad;
  // [size] of SgdOptions::copy_dtype: the rounded new parameter; null without one.
  void* param_copy;
  int64_t size;
  // The index of the parameter group.
  int32_t group;
};

inline constexpr int kMaxSgdGroups = 128;

// A group's constants that do not change from step to step.
struct SgdGroupConstants {
  float momentum;
  // 1 - dampening, rounded once from double.
  float one_minus_dampening;
  float weight_decay;
  int32_t nesterov;
};

// All that a call passes beside its segments; sgd_parameters.h fills it.
struct SgdParameters {
  // Device memory, both; or both are null, and the step is that of the numbers below.
  const StepState* state;
  const GroupStep* group_steps;
  // Counted from 1; 0 means that nobody filled this.
  int64_t step;
  float grad_multiplier;
  bool decoupled;
  // The learning rates of so many groups.
  int32_t one_step_groups;
  float lr[kMaxOneStepGroups];
  SgdGroupConstants groups[kMaxSgdGroups];
};

// The constants of one parameter group in one step.
struct SgdCoefficients {
  // The factor on the gradient, which unscales and clips it.
  float multiplier;
  float momentum;
  float one_minus_dampening;
  // The weight decay that enters the gradient.
  float l2;
  // The factor on the parameter: 1 - lr * decoupled weight decay.
  float decay_factor;
  float lr;
  bool nesterov;
};

// The kind of update, fixed for a whole segment: with kL2 c.l2 applies, else c.decay_factor;
// without kMomentum there is no state.
template <bool kL2, bool kMomentum>
struct SgdElement {
  static constexpr int kStates = kMomentum ? 1 : 0;

  static BRIGADE_INLINE void Update(const SgdCoefficients& c, float gradient, float& param,
                                    [[maybe_unused]] float* state) {
    using precision::Fma;
    using precision::Mul;
    float g = Mul(gradient, c.multiplier);
    if constexpr (kL2) g = Fma(c.l2, param, g);
    if constexpr (kMomentum) {
      float& momentum = state[0];
      momentum = Fma(c.momentum, momentum, Mul(c.one_minus_dampening, g));
      g = c.nesterov ? Fma(c.momentum, momentum, g) : momentum;
    }
    if constexpr (!kL2) param = Mul(param, c.decay_factor);
    param = Fma(-c.lr, g, param);
  }
};

// SGD for the loops that optimizers share (kernels/internal/update_tile.h).
struct SgdPolicy {
  using Segment = SgdSegment;
  using Parameters = SgdParameters;
  // Segments of 48 bytes, with their first tiles and the groups' constants, fill a launch's
  // arguments.
  static constexpr int kMaxSegments = 540;
  static constexpr int kStates = 1;

  // What the step fixes for a group, where its numbers are the host's.
  static BRIGADE_INLINE GroupStep OwnStep(const SgdParameters& parameters, int32_t group) {
    if (group >= parameters.one_step_groups) return {};
    return {parameters.lr[group], parameters.lr[group], 1.0f};
  }

  // The update reads the learning rate alone, which may be 0 in a step of StepControl's: that has
  // corrections, of a group without moments too.
  static BRIGADE_INLINE bool IsFilled(const GroupStep& step) {
    return step.lr != 0.0f || step.inv_sqrt_correction != 0.0f;
  }

  static BRIGADE_INLINE float* State(const SgdSegment& s, int) { return s.momentum; }

  static BRIGADE_INLINE SgdCoefficients MakeCoefficients(const SgdParameters& parameters,
                                                         const SgdSegment& s) {
    const SgdGroupConstants& group = parameters.groups[s.group];
    SgdCoefficients c;
    c.multiplier = MultiplierOf(parameters);
    c.lr = StepOf<SgdPolicy>(parameters, s.group).lr;
    const int64_t step = parameters.state == nullptr ? parameters.step : parameters.state->step;
    c.momentum = group.momentum;
    // The first gradient enters the momentum undampened.
    c.one_minus_dampening = step == 1 ? 1.0f : group.one_minus_dampening;
    c.l2 = group.weight_decay;
    c.decay_factor = precision::Fma(-c.lr, group.weight_decay, 1.0f);
    c.nesterov = group.nesterov != 0;
    return c;
  }

  template <typename Run>
  static BRIGADE_INLINE void VisitElement(const SgdParameters& parameters, const SgdSegment& s,
                                          const Run& run) {
    const bool has_momentum = s.momentum != nullptr;
    if (parameters.decoupled) {
      has_momentum ? run(SgdElement<false, true>()) : run(SgdElement<false, false>());
    } else {
      has_momentum ? run(SgdElement<true, true>()) : run(SgdElement<true, false>());
    }
  }
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SGD_SGD_MATH_H_
