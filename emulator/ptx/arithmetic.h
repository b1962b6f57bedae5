#ifndef BRIGADE_EMULATOR_PTX_ARITHMETIC_H_
#define BRIGADE_EMULATOR_PTX_ARITHMETIC_H_

// What PTX's instructions compute, for one lane, as the PTX ISA says. Written without precision/,
// whose results it checks.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

// What every operation gives whose result is no number of float.
inline constexpr uint32_t kNanBits = 0x7fffffff;

inline float Canonical(float value) {
  return value != value ? std::bit_cast<float>(kNanBits) : value;
}
// Which one of double is taken from the host.
inline double Canonical(double value) { return value; }

// A subnormal number becomes a zero of its sign.
inline float FlushToZero(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

inline float Saturate(float value) {
  if (!(value > 0)) return 0.0f;  // of a NaN as well
  return value < 1 ? value : 1.0f;
}

// Of two numbers; of a number and a NaN the number. -0 is below 0.
template <typename T>
T Minimum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return Canonical(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}

template <typename T>
T Maximum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return Canonical(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

// fp16 and bf16, by their bits.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value, Rounding rounding);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value, Rounding rounding);

// a * b + c, or, if that is no float, the one of the two next to it whose last bit is 1: rounded
// once more, to a format of at most 22 bits, it gives what the exact result does. Of fp16 or bf16.
float FusedToOdd(float a, float b, float c);

// The nearest integer of type To in the direction `rounding` (kNearest: of two, the even one);
// numbers out of range become the nearest in range. A NaN becomes 0; of double, or in 64 bits, only
// the highest bit is set.
template <typename To, typename From>
To ToInteger(From value, Rounding rounding) {
  using Limits = std::numeric_limits<To>;
  if (value != value) {
    const bool is_wide = sizeof(To) == 8 || sizeof(From) == 8;
    return is_wide ? static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1)) : To{0};
  }
  From whole = value;
  switch (rounding) {
    case Rounding::kNearest:
      whole = std::nearbyint(value);
      break;
    case Rounding::kZero:
      whole = std::trunc(value);
      break;
    case Rounding::kDown:
      whole = std::floor(value);
      break;
    case Rounding::kUp:
      whole = std::ceil(value);
      break;
  }
  // The largest integer may be no number of From: the next power of two is.
  const From end = std::ldexp(From{1}, Limits::digits);
  if (whole >= end) return Limits::max();
  if (whole < (std::is_signed_v<To> ? -end : From{0})) return Limits::min();
  return static_cast<To>(whole);
}

template <typename T>
T HighProduct(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
}

// Four bytes of the eight of b:a, chosen by the nibbles of `selection`; bit 3 of a nibble takes the
// byte's sign for all of its bits.
uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selection);

// The lowest bit becomes the highest one, and so on.
template <typename T>
T ReverseBits(T value) {
  T reversed = 0;
  for (size_t i = 0; i < 8 * sizeof(T); ++i) {
    reversed = static_cast<T>(reversed << 1 | (value >> i & 1));
  }
  return reversed;
}

// `width` ones from bit `first` on; none of what is beyond bit 31.
inline uint32_t BitMask(uint32_t first, uint32_t width) {
  if (first >= 32 || width == 0) return 0;
  return (width >= 32 ? ~uint32_t{0} : (uint32_t{1} << width) - 1) << first;
}

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_ARITHMETIC_H_
