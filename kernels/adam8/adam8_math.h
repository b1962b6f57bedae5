#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_MATH_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_MATH_H_

// Moments as codes of 8 bits, and a segment with them, for CUDA, SIMD and scalar code alike. The
// update between is Adam's (adam_math.h).
//
// Blocks       Elements [256 b, 256 b + 256) of a segment, the last block as far as there are any:
//              a code for each, and one scale, the largest magnitude among them.
// Values       The scale times one of 256 numbers: 0, 1, and in the seven decades from 1e-7 to 1 1,
//              2, 4, ..., 64 numbers, those in the middle of as many equal parts of [0.1, 1] *
//              10^(i - 6), i from 0 to 6. m has them with both signs, but no -1; v, which is never
//              negative, twice as many in each decade.
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
// What takes [0.1, 1] * kDecadeSize to [1, 2], with kPartsBegin added.
template <int kDecade>
inline constexpr float kToParts = static_cast<float>(PowerOfTen(6 - kDecade) / 0.9);
inline constexpr float kPartsBegin = static_cast<float>(8.0 / 9.0);
// Below 2: the last of a decade's parts.
inline constexpr float kPartsEnd = 0x1.fffffep0f;
// Below the end of every lowest part, and not below the lowest decade.
inline constexpr float kLeast = 0x1p-23f;
// What is nearer to 0 than to the lowest number of a first moment, and the middle of the highest
// number and 1.
inline constexpr float kZeroEnd = static_cast<float>(1e-6 * 0.55 / 2);
template <MomentKind kKind>
inline constexpr float kOneBegin = static_cast<float>(1.0 - 0.225 / (64 * kLowest<kKind>));

// All bits set where it is true: without a branch, for the loops' sake, which compilers do not turn
// into vectors where anything that is computed is under a condition.
BRIGADE_INLINE int32_t MaskOf(bool is_true) { return -static_cast<int32_t>(is_true); }

BRIGADE_INLINE int32_t BitsOf(float x) { return __builtin_bit_cast(int32_t, x); }
BRIGADE_INLINE float FloatOf(int32_t bits) { return __builtin_bit_cast(float, bits); }

// What turns the bits of a decade's number into those of the one before. No constants: nvcc takes
// no __builtin_bit_cast in one.
template <int kDecade>
BRIGADE_INLINE int32_t SizeStep() {
  return BitsOf(kDecadeSize<kDecade>) ^ BitsOf(kDecadeSize<kDecade - 1>);
}
template <int kDecade>
BRIGADE_INLINE int32_t ToPartsStep() {
  return BitsOf(kToParts<kDecade>) ^ BitsOf(kToParts<kDecade - 1>);
}

// The place of the number nearest to x among those of a moment that are not below 0, counted so
// that decade i begins at kLowest * 2^i, and kOne is 1; 0 for 0. Of x in [0, 1]; without `has_one`
// 1 counts as the highest number below.
template <MomentKind kKind>
BRIGADE_INLINE int32_t CountOf(float x, bool has_one) {
  int32_t scale = BitsOf(kToParts<0>);
  int32_t decade = 0;
  const auto raise = [&](float end, int32_t step) {
    const int32_t is_above = MaskOf(x > end);
    scale ^= step & is_above;
    decade -= is_above;
  };
  raise(kDecadeEnd<kKind, 0>, ToPartsStep<1>());
  raise(kDecadeEnd<kKind, 1>, ToPartsStep<2>());
  raise(kDecadeEnd<kKind, 2>, ToPartsStep<3>());
  raise(kDecadeEnd<kKind, 3>, ToPartsStep<4>());
  raise(kDecadeEnd<kKind, 4>, ToPartsStep<5>());
  raise(kDecadeEnd<kKind, 5>, ToPartsStep<6>());
  // kLowest * 2^decade.
  const float numbers = FloatOf(BitsOf(static_cast<float>(kLowest<kKind>)) + (decade << 23));
  float parts = precision::Fma(x > kLeast ? x : kLeast, FloatOf(scale), kPartsBegin);
  parts = parts < kPartsEnd ? parts : kPartsEnd;
  const auto count = static_cast<int32_t>(precision::Mul(parts, numbers));
  const int32_t is_zero = MaskOf(kKind == MomentKind::kFirst ? x < kZeroEnd : x == 0.0f);
  const int32_t is_one = MaskOf(x > kOneBegin<kKind>) & MaskOf(has_one);
  return (count & ~is_zero & ~is_one) | (kOne<kKind> & is_one);
}

// The number of a place; of kLowest - 1 and less 0.
template <MomentKind kKind>
BRIGADE_INLINE float NumberAt(int32_t count) {
  const int32_t bits = BitsOf(static_cast<float>(count));
  // count = 2^e (1 + part), and 1 / (2 2^e).
  const float part = precision::Sub(FloatOf((bits & 0x007fffff) | 0x3f800000), 1.0f);
  const float half = FloatOf((253 << 23) - (bits & 0x7f800000));
  const float in_decade = precision::Fma(0.9f, precision::Add(part, half), 0.1f);
  int32_t size = BitsOf(kDecadeSize<0>);
  size ^= SizeStep<1>() & MaskOf(count >= kLowest<kKind> << 1);
  size ^= SizeStep<2>() & MaskOf(count >= kLowest<kKind> << 2);
  size ^= SizeStep<3>() & MaskOf(count >= kLowest<kKind> << 3);
  size ^= SizeStep<4>() & MaskOf(count >= kLowest<kKind> << 4);
  size ^= SizeStep<5>() & MaskOf(count >= kLowest<kKind> << 5);
  size ^= SizeStep<6>() & MaskOf(count >= kLowest<kKind> << 6);
  const int32_t number = BitsOf(precision::Mul(in_decade, FloatOf(size)));
  const int32_t is_one = MaskOf(count == kOne<kKind>);
  const int32_t is_zero = MaskOf(count < kLowest<kKind>);
  return FloatOf((number & ~is_zero & ~is_one) | (BitsOf(1.0f) & is_one));
}

}  // namespace adam8_internal

// A moment in a block of this scale.
template <MomentKind kKind>
BRIGADE_INLINE float MomentOf(uint8_t code, float scale) {
  using adam8_internal::BitsOf;
  using adam8_internal::NumberAt;
  if constexpr (kKind == MomentKind::kSecond) {
    return precision::Mul(NumberAt<kKind>(code + 1), scale);
  } else {
    const int32_t place = code - 127;
    const int32_t sign = place >> 31;
    const int32_t number = BitsOf(NumberAt<kKind>((place ^ sign) - sign));
    return precision::Mul(adam8_internal::FloatOf(number | (sign & INT32_MIN)), scale);
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
  const int32_t bits = adam8_internal::BitsOf(moment);
  const float magnitude = adam8_internal::FloatOf(bits & coder.mask);
  const float x = precision::Mul(precision::Mul(magnitude, coder.up), coder.inverse);
  if constexpr (kKind == MomentKind::kSecond) {
    const int32_t count = CountOf<kKind>(x, true);
    return static_cast<uint8_t>(count - 1 - adam8_internal::MaskOf(count == 0));
  } else {
    const int32_t sign = bits >> 31;
    const int32_t count = CountOf<kKind>(x, sign == 0);
    return static_cast<uint8_t>(127 + ((count ^ sign) - sign));
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
