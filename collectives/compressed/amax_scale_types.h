#ifndef BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_TYPES_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_TYPES_H_

#include <cstdint>

namespace brigade::collectives {

// Device memory.
struct AmaxScale {
  float scale;    // into the wire's range
  float unscale;  // and back: 1 / scale
};

// Scales and their inverses are normal floats.
inline constexpr float kMinAmaxScale = 0x1p-126f;
inline constexpr float kMaxAmaxScale = 0x1p126f;

// Exponents of the limits of sums on the wire: half of the power of two past the type's largest value.
inline constexpr int32_t kHalfSumLimit = 15;       // of 65504
inline constexpr int32_t kBFloat16SumLimit = 127;  // of 2^128 - 2^120

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_TYPES_H_
