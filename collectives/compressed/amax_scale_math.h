#ifndef BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_MATH_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_MATH_H_

#include <cstdint>

#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::collectives {

// Device memory.
struct AmaxScale {
  // The factor into the wire's range.
  float scale;
  // The factor back: 1 / scale.
  float unscale;
};

// Scales and their inverses are normal floats.
inline constexpr float kMinAmaxScale = 0x1p-126f;
inline constexpr float kMaxAmaxScale = 0x1p126f;

// Exponents of the limits of sums on the wire: half of the power of two past the type's largest
// value.
// float16: the largest value is 65504.
inline constexpr int32_t kHalfSumLimit = 15;
// bfloat16: the largest value is 2^128 - 2^120.
inline constexpr int32_t kBFloat16SumLimit = 127;

// The scale for values of at most `amax`, of which any `terms` add up to 2^limit or less. In
// integers: floats are powers of two in their exponent's bits.
BRIGADE_HOST_DEVICE inline AmaxScale AmaxScaleFor(float amax, int64_t terms, int32_t limit) {
  const int32_t bits = __builtin_bit_cast(int32_t, amax);
  if (bits == 0 || bits >= 0x7f800000) return {1.0f, 1.0f};
  int32_t exponent = limit - ((bits >> 23) - 126);  // amax < 2^((bits >> 23) - 126)
  for (int64_t power = 1; power < terms; power *= 2) --exponent;
  if (exponent < -126) exponent = -126;
  if (exponent > 126) exponent = 126;
  return {__builtin_bit_cast(float, (127 + exponent) << 23),
          __builtin_bit_cast(float, (127 - exponent) << 23)};
}

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_MATH_H_
