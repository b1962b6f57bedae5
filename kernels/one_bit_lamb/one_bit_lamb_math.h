#ifndef BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_MATH_H_
#define BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_MATH_H_

// What 1-bit LAMB does beside LAMB (lamb_math.h), for CUDA, SIMD and scalar code alike.
//
// Sums         As those of LAMB: lanes of a tile, then tiles of a tensor.
// Source       Li et al. 2021 (arXiv 2104.06069), algorithm 1; tests/spec/one_bit_lamb.h.
// Determinism  Every operation rounds once, where it is written.

#include <cstdint>

#include "brigade/kernels/lamb/lamb_math.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// What is known of a whole tensor, the same on all ranks.
struct OneBitLambNumbers {
  // The mean of the warm-up's trust ratios, which begins at 0.
  float ratio;
  // By which momentum is multiplied on the wire; 0: the second moments are not frozen yet.
  float scale;
  // Of the ratio.
  float factor;
};

// Of a tile, or a tensor: sums of squares, and the greatest quotient of second moments' roots. When
// moments are frozen `update` is that of the momentum.
struct OneBitLambSums {
  double direction;
  double update;
  double quotient;
};

// The coefficients, rounded once.
struct OneBitLambConstants {
  float ratio_beta, one_minus_ratio_beta;
  float min_factor, max_factor;
  // How far a factor may be from the one before: what it is multiplied by.
  float least_change, most_change;
};

// A piece of a tensor, which begins at a multiple of kLambTile elements of it. Device memory.
struct OneBitLambSegment {
  // [size] each: the fp32 master, the first moment, the frozen second one, the fresh one.
  const float* param;
  float* m;
  const float* v;
  float* fresh;
  // [size]: the first moment of all ranks, which is the next one.
  const float* mean;
  int64_t size;
  int32_t group;
  // Which of the numbers are those of the tensor.
  int32_t tensor;
  // Where the sums of its tiles are.
  int64_t first_tile;
};

// A whole tensor on its way to the wire, and back.
struct OneBitLambMessage {
  // [size]: the first moment of all ranks; not read on the way back.
  const float* m;
  // [size] of LambOptions::grad_dtype: this rank's own gradient; not read on the way back.
  const void* grad;
  // [size]
  float* message;
  int64_t size;
  int32_t group;
  int32_t tensor;
};

BRIGADE_INLINE float OneBitLambRatio(const OneBitLambConstants& c, float ratio, float trust) {
  return precision::Fma(c.ratio_beta, ratio, precision::Mul(c.one_minus_ratio_beta, trust));
}

// The greatest scale: a momentum that was next to nothing when second moments froze would leave the
// range of floats once its gradients are of ordinary size.
inline constexpr float kMostOneBitLambScale = 0x1p20f;

// From the sum of the tensors' root mean squares, and this one's.
BRIGADE_INLINE float OneBitLambScale(double sum, int64_t tensors, double rms) {
  if (rms == 0.0) return 1.0f;
  const double scale = precision::Div(precision::Div(sum, static_cast<double>(tensors)), rms);
  return scale < kMostOneBitLambScale ? static_cast<float>(scale) : kMostOneBitLambScale;
}

// A rank's own first moment, as it is sent.
BRIGADE_INLINE float OneBitLambSent(const LambCoefficients& c, float gradient, float m,
                                    float scale) {
  using precision::Mul;
  const float g = Mul(gradient, c.multiplier);
  return Mul(precision::Fma(c.group.beta1, m, Mul(c.group.one_minus_beta1, g)), scale);
}

// The direction of a new first moment; what changed `before` into it goes into `fresh`. Where a
// frozen second moment is infinite, so is the fresh one, and the quotient is NaN.
struct OneBitLambElement {
  float direction, update, quotient;
};
BRIGADE_INLINE OneBitLambElement OneBitLambMoment(const LambCoefficients& c, float m, float before,
                                                  float v, float param, float& fresh) {
  using precision::Add;
  using precision::Div;
  using precision::Fma;
  using precision::Mul;
  const float g = Div(Fma(-c.group.beta1, before, m), c.group.one_minus_beta1);
  fresh = Fma(c.group.beta2, fresh, Mul(Mul(c.group.one_minus_beta2, g), g));
  const float frozen_root = Add(precision::Sqrt(v), c.group.eps);
  const float fresh_root = Add(precision::Sqrt(fresh), c.group.eps);
  const float direction = Div(m, frozen_root);
  return {direction, Fma(c.group.weight_decay, param, direction), Div(frozen_root, fresh_root)};
}

// The greater one that is a number.
BRIGADE_INLINE double OneBitLambGreater(double most, double quotient) {
  return most < quotient ? quotient : most;
}

BRIGADE_INLINE float OneBitLambClamp(float x, float least, float most) {
  const float raised = x < least ? least : x;
  return raised > most ? most : raised;
}

// The next factor.
BRIGADE_INLINE float OneBitLambFactor(const OneBitLambConstants& c, float weight_decay,
                                      const OneBitLambSums& sums, float before) {
  using precision::Mul;
  auto factor = static_cast<float>(sums.quotient);
  if (weight_decay != 0.0f) {
    const double of_update = precision::Sqrt(sums.update);
    float ratio = 1.0f;
    if (of_update != 0.0) {
      const auto share =
          static_cast<float>(precision::Div(precision::Sqrt(sums.direction), of_update));
      if (share < ratio) ratio = share;
    }
    factor = precision::Fma(factor, ratio, precision::Sub(1.0f, ratio));
  }
  factor = OneBitLambClamp(factor, c.min_factor, c.max_factor);
  return OneBitLambClamp(factor, Mul(before, c.least_change), Mul(before, c.most_change));
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_MATH_H_
