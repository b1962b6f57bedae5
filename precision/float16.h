#ifndef BRIGADE_PRECISION_FLOAT16_H_
#define BRIGADE_PRECISION_FLOAT16_H_

#include <cstdint>

#include "brigade/precision/host_device.h"

namespace brigade::precision {

// The two 16-bit floating-point formats of training: storage types that convert to and from float.
//
// Precision    Widening is exact. Narrowing rounds to nearest, ties to even; subnormals are kept,
//              values past the largest finite one become infinity, NaN becomes 0x7fff.
// Determinism  Same bits on every CPU and GPU, NaN payloads of a widened NaN aside; equal to CUDA's
//              __float2half_rn, __float2bfloat16_rn and their inverses.
// Source       IEEE 754-2008 binary16; bfloat16 is the upper half of binary32.
//
// Branch-free on the host, so that loops over them vectorise.

// 5 exponent bits, 10 fraction bits: largest 65504, smallest normal 2^-14, smallest subnormal
// 2^-24.
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
  // What is at least 65520 rounds to 65536, whose bits as a half would be those of infinity.
  const uint32_t magnitude = word & 0x7fffffffu;
  const uint32_t capped = magnitude < 0x47800000u ? magnitude : 0x47800000u;
  // The power of two whose units are those of the result: 2^13 times the value's, at least 2^-1.
  // Adding it rounds, and leaves the units counted from 0 in the low bits of the sum, the implicit
  // one included.
  const uint32_t smallest = capped < 0x38800000u ? 0x38800000u : capped;  // 2^-14: subnormal below
  const uint32_t power = (smallest & 0x7f800000u) + (13u << 23);
  const uint32_t sum = __builtin_bit_cast(
      uint32_t, __builtin_bit_cast(float, capped) + __builtin_bit_cast(float, power));
  // The exponent is rebased from 126 (2^-1) to 0. Only the low 16 bits count.
  const uint32_t result = sum + (power >> 13) - (126u << 10);
  const uint32_t sign = (word >> 16) & 0x8000u;
  bits = static_cast<uint16_t>(magnitude > 0x7f800000u ? 0x7fffu : result | sign);
#endif
}

BRIGADE_INLINE Half::operator float() const {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  // Exponent and fraction at their places in a float, the exponent rebased. A subnormal one counts
  // units of 2^-24: 2^-14 is put before it and taken away. No operand is a subnormal float, which
  // would be 0 for who has those flushed, and costs some processors 150 cycles.
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  const bool subnormal = magnitude < (1u << 23);
  const uint32_t rebase = magnitude < (31u << 23) ? 112u << 23 : 224u << 23;
  const uint32_t rebased = magnitude + rebase + (subnormal ? 1u << 23 : 0u);
  const float value = __builtin_bit_cast(float, rebased) - (subnormal ? 0x1p-14f : 0.0f);
  const uint32_t sign = (bits & 0x8000u) << 16;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, value) | sign);
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
