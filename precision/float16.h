#ifndef BRIGADE_PRECISION_FLOAT16_H_
#define BRIGADE_PRECISION_FLOAT16_H_

#include <cstdint>

#include "brigade/precision/host_device.h"

namespace brigade::precision {

// The two 16-bit floating-point formats of training: storage types that convert to and from float.
//
// Precision    Widening is exact. Narrowing rounds to nearest, ties to even; subnormals are kept, values
//              past the largest finite one become infinity, NaN becomes 0x7fff.
// Determinism  Same bits on every CPU and GPU, NaN payloads of a widened NaN aside; equal to CUDA's
//              __float2half_rn, __float2bfloat16_rn and their inverses.
// Source       IEEE 754-2008 binary16; bfloat16 is the upper half of binary32.
//
// Branch-free on the host, so that loops over them vectorise.

// 5 exponent bits, 10 fraction bits: largest 65504, smallest normal 2^-14, smallest subnormal 2^-24.
struct Half {
  uint16_t bits;

  Half() = default;
  BRIGADE_INLINE explicit Half(float value);
  BRIGADE_INLINE explicit operator float() const;
  BRIGADE_INLINE static Half FromBits(uint16_t bits) {
    Half half;
    half.bits = bits;
    return half;
  }
};

// 8 exponent bits, 7 fraction bits: the range of float.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  BRIGADE_INLINE explicit BFloat16(float value);
  BRIGADE_INLINE explicit operator float() const;
  BRIGADE_INLINE static BFloat16 FromBits(uint16_t bits) {
    BFloat16 bfloat16;
    bfloat16.bits = bits;
    return bfloat16;
  }
};

BRIGADE_INLINE Half::Half(float value) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
  const uint32_t word = __builtin_bit_cast(uint32_t, value);
  const uint32_t magnitude = word & 0x7fffffffu;
  // Normal results: add just under half a unit, or exactly half where the kept part is odd; the carry
  // runs into the exponent, which is then rebased from 127 to 15.
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  // Subnormal results: the units of 0.5f are 2^-24, those of the result, so the addition rounds.
  const uint32_t subnormal =
      __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;  // below 2^-14
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;            // 65520 and up
  result |= (word >> 16) & 0x8000u;
  result = magnitude > 0x7f800000u ? 0x7fffu : result;
  bits = static_cast<uint16_t>(result);
#endif
}

BRIGADE_INLINE Half::operator float() const {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const uint32_t magnitude = bits & 0x7fffu;
  // As a float the shifted bits are the value times 2^-112, for subnormals too; both factors are exact.
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  uint32_t word = __builtin_bit_cast(uint32_t, scaled);
  word = magnitude >= 0x7c00u ? (0x7f800000u | (magnitude << 13)) : word;
  return __builtin_bit_cast(float, word | (static_cast<uint32_t>(bits & 0x8000u) << 16));
#endif
}

BRIGADE_INLINE BFloat16::BFloat16(float value) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
  const uint32_t word = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  bits = static_cast<uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
#endif
}

BRIGADE_INLINE BFloat16::operator float() const {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

}  // namespace brigade::precision

#endif  // BRIGADE_PRECISION_FLOAT16_H_
