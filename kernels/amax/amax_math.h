#ifndef BRIGADE_KERNELS_AMAX_AMAX_MATH_H_
#define BRIGADE_KERNELS_AMAX_AMAX_MATH_H_

// The maximum of absolute values, for CUDA, SIMD and scalar code alike: a maximum of their bits as
// integers, whose order is that of the values, with infinity above all numbers and NaN above
// infinity.

#include <cstdint>

#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// Device memory.
struct AmaxResult {
  // The largest absolute value: 0 without elements, NaN if an element is NaN.
  float value;
  // 1 if `value` is infinite or NaN, else 0.
  int32_t non_finite;
};

// 1024: 8 blocks for each of 128 multiprocessors; untuned.
inline constexpr int64_t kMaxAmaxParts = 1024;

// Device memory that Amax works in: the maxima of parts of the array, as bits.
struct AmaxWorkspace {
  int32_t parts[kMaxAmaxParts];
};

BRIGADE_INLINE int32_t MagnitudeBits(float x, float scale) {
  return __builtin_bit_cast(int32_t, precision::Mul(x, scale)) & 0x7fffffff;
}

BRIGADE_INLINE int32_t LargerBits(int32_t a, int32_t b) { return a < b ? b : a; }

BRIGADE_INLINE AmaxResult AmaxOf(int32_t bits) {
  return {__builtin_bit_cast(float, bits), bits >= 0x7f800000 ? 1 : 0};
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_AMAX_AMAX_MATH_H_
