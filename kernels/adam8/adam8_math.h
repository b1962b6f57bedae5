#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_MATH_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_MATH_H_

// Moments as codes of 8 bits, and a segment with them, for CUDA, SIMD and scalar code alike. The
// update between is Adam's (adam_math.h).
//
// Blocks       Elements [256 b, 256 b + 256) of a segment, the last block as far as there are any:
//              a code for each, and one scale, the largest magnitude among them.
// Values       The scale times one of 256 numbers: 0, 1, and in the seven decades from 1e-7 to 1
//              1, 2, 4, ..., 64 numbers, those in the middle of as many equal parts of
//              [0.1, 1] * 10^(i - 6), i from 0 to 6. m has them with both signs, but no -1; v, which
//              is never negative, twice as many in each decade.
// Codes        The place of the value among all 256, in ascending order: of m 127 is 0, of v 0 is.
//              A memory of zeros is v = 0, and m = 0 by its scale, which is 0.
// Rounding     To the nearest of these numbers, as far as the operations here, each rounded once,
//              tell; but a second moment above 0 is never rounded to 0, by whose root an element of
//              small gradients would be divided next (decision 0245).
// Non-finite   The scale of a block that holds NaN or an infinity is NaN (0x7fc00000), its codes
//              are those of 0: every element of it comes back as NaN.
// Source       Dettmers et al. 2022 (arXiv 2110.02861), and the tables of bitsandbytes
//              (create_dynamic_map); there blocks of 256 since release 0.45.

#include <cstdint>

#include "brigade/kernels/adam/adam_math.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// The elements that share a scale.
inline constexpr int64_t kMomentBlock = 256;

// The scales of `size` elements.
BRIGADE_HOST_DEVICE constexpr int64_t MomentBlocks(int64_t size) {
  static_assert(kMomentBlock == 1 << 8);
  return (size + kMomentBlock - 1) >> 8;
}

// One piece of the parameters with its optimizer state. Device memory.
struct Adam8Segment {
  // [size], the fp32 master.
  float* param;
  // [size], the codes of the first and of the second moment.
  uint8_t* m;
  uint8_t* v;
  // [MomentBlocks(size)], their scales.
  float* m_scale;
  float* v_scale;
  // [size] of AdamOptions::grad_dtype.
  const void* grad;
  // [size] of AdamOptions::copy_dtype: the rounded new parameter; null without one.
  void* param_copy;
  int64_t size;
  // The index of the parameter group.
  int32_t group;
};

// Of a moment: with signs, the first one; without, the second.
enum class MomentKind : uint8_t { kFirst, kSecond };

namespace adam8_internal {

// Numbers of the lowest decade.
template <MomentKind kKind>
inline constexpr int32_t kLowest = kKind == MomentKind::kFirst ? 1 : 2;
// What counts all numbers but 0: those of decade i are counted from kLowest * 2^i on, 1 comes last.
template <MomentKind kKind>
inline constexpr int32_t kOne = 128 * kLowest<kKind>;

constexpr double PowerOfTen(int exponent) {
  double power = 1.0;
  for (int i = exponent; i < 0; ++i) power /= 10.0;
  for (int i = 0; i < exponent; ++i) power *= 10.0;
  return power;
}

// What is nearer to the lowest number of decade `decade` + 1 than to the highest of decade
// `decade`: the middle of 10^(i - 6) (1 - 0.45 / n) and 10^(i - 6) (1 + 2.25 / n).
template <MomentKind kKind, int kDecade>
inline constexpr float kDecadeEnd = static_cast<float>(PowerOfTen(kDecade - 6) *
                                                       (1.0 + 0.9 / (kLowest<kKind> << kDecade)));
template <int kDecade>
inline constexpr float kDecadeSize = static_cast<float>(PowerOfTen(kDecade - 6));
template <int kDecade>
inline constexpr float kToDecade = static_cast<float>(PowerOfTen(6 - kDecade));
// What is nearer to 0 than to the lowest number of a first moment, and the middle of the highest
// number and 1.
inline constexpr float kZeroEnd = static_cast<float>(1e-6 * 0.55 / 2);
template <MomentKind kKind>
inline constexpr float kOneBegin = static_cast<float>(1.0 - 0.225 / (64 * kLowest<kKind>));

// How many numbers of a moment are below x or nearest to it, from 1 on, of those above 0; 0 for 0.
// Of x in [0, 1]; of a first moment with a sign 1 counts as the highest number below.
template <MomentKind kKind>
BRIGADE_INLINE int32_t CountOf(float x, bool has_one) {
  using precision::Mul;
  float place = Mul(x, kToDecade<0>);
  float numbers = static_cast<float>(kLowest<kKind>);
  const auto raise = [&](float end, float to_decade, int32_t of_decade) {
    const bool is_above = x > end;
    place = is_above ? Mul(x, to_decade) : place;
    numbers = is_above ? static_cast<float>(of_decade) : numbers;
  };
  raise(kDecadeEnd<kKind, 0>, kToDecade<1>, kLowest<kKind> << 1);
  raise(kDecadeEnd<kKind, 1>, kToDecade<2>, kLowest<kKind> << 2);
  raise(kDecadeEnd<kKind, 2>, kToDecade<3>, kLowest<kKind> << 3);
  raise(kDecadeEnd<kKind, 3>, kToDecade<4>, kLowest<kKind> << 4);
  raise(kDecadeEnd<kKind, 4>, kToDecade<5>, kLowest<kKind> << 5);
  raise(kDecadeEnd<kKind, 5>, kToDecade<6>, kLowest<kKind> << 6);
  constexpr float kParts = static_cast<float>(1.0 / 0.9);
  place = Mul(Mul(precision::Sub(place, 0.1f), kParts), numbers);
  // More than -1 at the low end.
  const float most = precision::Sub(numbers, 1.0f);
  place = place < most ? place : most;
  const int32_t in_decade = static_cast<int32_t>(place);
  int32_t count = static_cast<int32_t>(numbers) + in_decade;
  const bool is_zero = kKind == MomentKind::kFirst ? x < kZeroEnd : x == 0.0f;
  count = is_zero ? 0 : count;
  return has_one && x > kOneBegin<kKind> ? kOne<kKind> : count;
}

// The number that is counted so; of kLowest - 1 and less 0.
template <MomentKind kKind>
BRIGADE_INLINE float NumberAt(int32_t count) {
  const float wide = static_cast<float>(count);
  const int32_t bits = __builtin_bit_cast(int32_t, wide);
  // count = 2^e (1 + part), and 1 / (2 2^e).
  const float part =
      precision::Sub(__builtin_bit_cast(float, (bits & 0x007fffff) | 0x3f800000), 1.0f);
  const float half = __builtin_bit_cast(float, (253 << 23) - (bits & 0x7f800000));
  const float number = precision::Fma(0.9f, precision::Add(part, half), 0.1f);
  float decade = kDecadeSize<0>;
  decade = count >= kLowest<kKind> << 1 ? kDecadeSize<1> : decade;
  decade = count >= kLowest<kKind> << 2 ? kDecadeSize<2> : decade;
  decade = count >= kLowest<kKind> << 3 ? kDecadeSize<3> : decade;
  decade = count >= kLowest<kKind> << 4 ? kDecadeSize<4> : decade;
  decade = count >= kLowest<kKind> << 5 ? kDecadeSize<5> : decade;
  decade = count >= kLowest<kKind> << 6 ? kDecadeSize<6> : decade;
  float value = precision::Mul(number, decade);
  value = count < kLowest<kKind> ? 0.0f : value;
  return count == kOne<kKind> ? 1.0f : value;
}

}  // namespace adam8_internal

// A moment in a block of this scale.
template <MomentKind kKind>
BRIGADE_INLINE float MomentOf(uint8_t code, float scale) {
  using adam8_internal::NumberAt;
  if constexpr (kKind == MomentKind::kSecond) {
    return precision::Mul(NumberAt<kKind>(code + 1), scale);
  } else {
    const int32_t place = code - 127;
    const float number = NumberAt<kKind>(place < 0 ? -place : place);
    return precision::Mul(place < 0 ? -number : number, scale);
  }
}

// A magnitude as bits: their order as integers is that of the values, with infinity above all
// numbers and NaN above infinity.
BRIGADE_INLINE int32_t MomentMagnitude(float x) {
  return __builtin_bit_cast(int32_t, x) & 0x7fffffff;
}

// How a block's moments become codes, from the largest magnitude.
struct MomentCoder {
  float scale;
  // A power of two that keeps `inverse` finite, 1 but for tiny scales.
  float up;
  float inverse;
  // Of a block that is not finite 0: all of it is 0 then.
  int32_t mask;
};

BRIGADE_INLINE MomentCoder MakeMomentCoder(int32_t magnitude) {
  const bool is_finite = magnitude < 0x7f800000;
  const float scale = __builtin_bit_cast(float, is_finite ? magnitude : 0x7fc00000);
  const float up = scale < 0x1p-100f ? 0x1p100f : 1.0f;
  // Of zeros, and of what is not finite, anything will do that is a number.
  const bool has_inverse = is_finite && magnitude != 0;
  const float largest = has_inverse ? precision::Mul(scale, up) : 1.0f;
  return {scale, up, precision::Div(1.0f, largest), is_finite ? 0x7fffffff : 0};
}

template <MomentKind kKind>
BRIGADE_INLINE uint8_t MomentCode(const MomentCoder& coder, float moment) {
  using adam8_internal::CountOf;
  const int32_t bits = __builtin_bit_cast(int32_t, moment);
  const float magnitude = __builtin_bit_cast(float, bits & coder.mask);
  const float x = precision::Mul(precision::Mul(magnitude, coder.up), coder.inverse);
  if constexpr (kKind == MomentKind::kSecond) {
    const int32_t count = CountOf<kKind>(x, true);
    return static_cast<uint8_t>(count == 0 ? 0 : count - 1);
  } else {
    const bool is_negative = bits < 0;
    const int32_t count = CountOf<kKind>(x, !is_negative);
    return static_cast<uint8_t>(is_negative ? 127 - count : 127 + count);
  }
}

// Adam's step, for what one_step.h asks of a policy.
struct Adam8Policy {
  using Segment = Adam8Segment;
  using Parameters = AdamParameters;
  // Segments of 72 bytes, with their first tiles and the groups' constants, fill a launch's
  // arguments.
  static constexpr int kMaxSegments = 360;

  static BRIGADE_INLINE GroupStep OwnStep(const AdamParameters& parameters, int32_t group) {
    return AdamPolicy::OwnStep(parameters, group);
  }
  static BRIGADE_INLINE bool IsFilled(const GroupStep& step) { return AdamPolicy::IsFilled(step); }
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM8_ADAM8_MATH_H_
