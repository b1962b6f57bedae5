#ifndef BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_MATH_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_MATH_H_

#include <cstdint>

#include "brigade/collectives/compressed/amax_scale_types.h"
#include "brigade/precision/host_device.h"

namespace brigade::collectives {

// The scale for values of at most `amax`, of which any `terms` add up to 2^limit or less. In integers: floats are
// powers of two in their exponent's bits.
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
