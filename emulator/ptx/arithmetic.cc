#include "brigade/emulator/ptx/arithmetic.h"

namespace brigade::emulator {
namespace {

// Whether a magnitude goes up to the next one of the target, from what is cut off: `cut` of
// `half` * 2 steps.
bool RoundsUp(uint32_t kept, uint32_t cut, uint32_t half, bool negative, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return cut > half || (cut == half && (kept & 1) != 0);
    case Rounding::kZero:
      return false;
    case Rounding::kDown:
      return negative && cut != 0;
    case Rounding::kUp:
      return !negative && cut != 0;
  }
  return false;
}

// The neighbour of `rounded`, which is even and not exact, on the side of the exact value.
template <typename Bits, typename T>
T ToOdd(T rounded, bool exact_is_larger) {
  const auto bits = std::bit_cast<Bits>(rounded);
  if ((bits & 1) != 0 || !std::isfinite(rounded)) return rounded;
  return std::bit_cast<T>(exact_is_larger ? bits + 1 : bits - 1);
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 31) {
    if (mantissa != 0) return std::bit_cast<float>(kNanBits);
    return std::bit_cast<float>(sign | 0x7f800000);
  }
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t FloatToHalf(float value, Rounding rounding) {
  if (value != value) return 0x7fff;
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool negative = bits >> 31 != 0;
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude == 0x7f800000) return static_cast<uint16_t>(sign | 0x7c00);
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  uint32_t kept = 0, cut = 0, half = 1;
  if (exponent > 15) {
    kept = 0x7bff;  // the largest number, and more than half a step above it
    cut = 2;
  } else {
    // The mantissa with its leading one, which subnormal numbers of fp16 shift further.
    const uint32_t mantissa = (magnitude & 0x7fffff) | (magnitude >> 23 != 0 ? 0x800000u : 0u);
    const int shift = exponent >= -14 ? 13 : 13 + (-14 - exponent);
    if (shift > 24) {
      cut = mantissa != 0 ? 1 : 0;
      half = 2;
    } else {
      half = uint32_t{1} << (shift - 1);
      kept = mantissa >> shift;
      cut = mantissa & (2 * half - 1);
    }
    // The leading one of a normal number adds one to the exponent.
    if (exponent >= -14) kept += static_cast<uint32_t>(exponent + 14) << 10;
  }
  if (RoundsUp(kept, cut, half, negative, rounding)) ++kept;  // carries into the exponent
  return static_cast<uint16_t>(sign | kept);
}

float BFloat16ToFloat(uint16_t bits) {
  const float value = std::bit_cast<float>(uint32_t{bits} << 16);
  return Canonical(value);
}

uint16_t FloatToBFloat16(float value, Rounding rounding) {
  if (value != value) return 0x7fff;
  const auto bits = std::bit_cast<uint32_t>(value);
  uint32_t kept = bits >> 16;
  const uint32_t cut = bits & 0xffff;
  if ((bits & 0x7fffffff) == 0x7f800000) return static_cast<uint16_t>(kept);
  if (RoundsUp(kept, cut, 0x8000, bits >> 31 != 0, rounding)) ++kept;
  return static_cast<uint16_t>(kept);
}

float FusedToOdd(float a, float b, float c) {
  const double product = static_cast<double>(a) * b;
  double sum = product + c;
  // What the sum has lost; Knuth's TwoSum.
  const double added = sum - product;
  const double lost = (product - (sum - added)) + (c - added);
  if (lost != 0) sum = ToOdd<uint64_t>(sum, (lost > 0) == (sum > 0));
  const auto result = static_cast<float>(sum);
  if (result == sum || sum != sum) return Canonical(result);
  return ToOdd<uint32_t>(result, std::fabs(sum) > std::fabs(static_cast<double>(result)));
}

uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selection) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = selection >> (4 * i) & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (nibble & 7))) & 0xff;
    if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

}  // namespace brigade::emulator
