#ifndef BRIGADE_KERNELS_LAMB_LAMB_MATH_H_
#define BRIGADE_KERNELS_LAMB_LAMB_MATH_H_

// The update of a tensor by LAMB, for CUDA, SIMD and scalar code alike: the formulas, and the order
// of the sums of squares, which is the same on all processors.
//
// Sums         Element i of a tile of kLambTile enters lane i mod kLambLanes, by an fma in double
//              from +0, in ascending order; then lane l takes lane l + n/2, of n lanes, until there
//              is one. The tiles of a tensor enter 32 lanes likewise, by additions.
// Source       You et al. 2020 (arXiv 1904.00962), algorithm 2; epsilon stands outside the
//              bias-corrected root, as in Adam here.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One tensor with its optimizer state: its elements share a trust ratio. Device memory.
struct LambSegment {
  // [size], the fp32 master.
  float* param;
  // [size], the first moment, exp_avg.
  float* m;
  // [size], the second moment, exp_avg_sq.
  float* v;
  // [size] of LambOptions::grad_dtype.
  const void* grad;
  // [size] of LambOptions::copy_dtype: the rounded new parameter; null without one.
  void* param_copy;
  int64_t size;
  // The index of the parameter group.
  int32_t group;
  // Of LambParams alone: where the tensor's trust ratio lies.
  const float* trust = nullptr;
};

inline constexpr int kMaxLambGroups = 64;

// The elements that are summed into one double, and the lanes of such a sum.
inline constexpr int64_t kLambTile = 8192;
inline constexpr int kLambLanes = 256;
// The lanes of a tensor's sum.
inline constexpr int kLambTileLanes = 32;

// The sums of squares of a tile, or of a tensor.
struct LambSums {
  double param;
  double update;
};

// A tensor whose tiles several ranks sum, in an array that has the sums of each rank, one rank
// after the other. The tensor lies in an array of `part` tiles for each rank.
struct LambTensor {
  // Its first tile in that array, and how many it has.
  int64_t first;
  int64_t count;
  // Where a rank's sums of that array begin among its own, and of how many tiles a rank has sums.
  int64_t offset;
  int64_t part;
  int64_t stride;
  // The index of the parameter group.
  int32_t group;
};

// Where the sums of the tensor's tile `tile` are.
BRIGADE_HOST_DEVICE inline int64_t LambTileAt(const LambTensor& tensor, int64_t tile) {
  const int64_t at = tensor.first + tile;
  return at / tensor.part * tensor.stride + tensor.offset + at % tensor.part;
}

// A group's constants that do not change from step to step.
struct LambGroupConstants {
  // 1 - beta is rounded once, from double.
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float weight_decay;
  float min_trust, max_trust;
};

// All that a call passes beside its segments; lamb_parameters.h fills it.
struct LambParameters {
  // Device memory, both; or both are null, and the step is that of the numbers below.
  const StepState* state;
  const GroupStep* group_steps;
  // Counted from 1; 0 means that nobody filled this.
  int64_t step;
  float grad_multiplier;
  GroupStep steps[kMaxOneStepGroups];
  LambGroupConstants groups[kMaxLambGroups];
};

// The constants of one parameter group in one step.
struct LambCoefficients {
  LambGroupConstants group;
  // The factor on the gradient, which unscales and clips it.
  float multiplier;
  float lr;
  // 1 / (1 - beta1^step).
  float correction;
  // 1 / sqrt(1 - beta2^step).
  float inv_sqrt_correction;
};

BRIGADE_INLINE void LambMoments(const LambCoefficients& c, float gradient, float& m, float& v) {
  using precision::Fma;
  using precision::Mul;
  const float g = Mul(gradient, c.multiplier);
  m = Fma(c.group.beta1, m, Mul(c.group.one_minus_beta1, g));
  v = Fma(c.group.beta2, v, Mul(Mul(c.group.one_minus_beta2, g), g));
}

// What the trust ratio and the rate multiply, of new moments and the old parameter.
BRIGADE_INLINE float LambUpdate(const LambCoefficients& c, float m, float v, float param) {
  using precision::Fma;
  const float denominator = Fma(precision::Sqrt(v), c.inv_sqrt_correction, c.group.eps);
  const float direction = precision::Div(precision::Mul(m, c.correction), denominator);
  return Fma(c.group.weight_decay, param, direction);
}

BRIGADE_INLINE double AddLambSquare(double lane, float x) {
  const double wide = x;
  return precision::Fma(wide, wide, lane);
}

// 1 for a tensor of zeros, or without an update; else within the group's bounds.
BRIGADE_INLINE float LambTrust(const LambGroupConstants& group, const LambSums& sums) {
  if (sums.param == 0.0 || sums.update == 0.0) return 1.0f;
  const double quotient = precision::Div(precision::Sqrt(sums.param), precision::Sqrt(sums.update));
  const auto ratio = static_cast<float>(quotient);
  const float raised = ratio < group.min_trust ? group.min_trust : ratio;
  return raised > group.max_trust ? group.max_trust : raised;
}

BRIGADE_INLINE float LambParam(float rate, float update, float param) {
  return precision::Fma(-rate, update, param);
}

struct LambPolicy {
  using Segment = LambSegment;
  using Parameters = LambParameters;

  // What the step fixes for a group, where its numbers are the host's.
  static BRIGADE_INLINE GroupStep OwnStep(const LambParameters& parameters, int32_t group) {
    return parameters.steps[group];
  }

  // No real step has 0 here.
  static BRIGADE_INLINE bool IsFilled(const GroupStep& step) {
    return step.inv_sqrt_correction != 0.0f;
  }

  static BRIGADE_INLINE LambCoefficients MakeCoefficients(const LambParameters& parameters,
                                                          int32_t group) {
    const GroupStep step = StepOf<LambPolicy>(parameters, group);
    LambCoefficients c;
    c.group = parameters.groups[group];
    c.multiplier = MultiplierOf(parameters);
    c.lr = step.lr;
    // With a rate of 0 nothing moves, whatever the correction.
    c.correction = step.lr != 0.0f ? precision::Div(step.step_size, step.lr) : 1.0f;
    c.inv_sqrt_correction = step.inv_sqrt_correction;
    return c;
  }
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LAMB_LAMB_MATH_H_
