#ifndef BRIGADE_KERNELS_AMAX_AMAX_TYPES_H_
#define BRIGADE_KERNELS_AMAX_AMAX_TYPES_H_

#include <cstdint>

namespace brigade::kernels {

// Device memory.
struct AmaxResult {
  float value;         // largest absolute value; 0 of no elements, NaN if there is one
  int32_t non_finite;  // 1 if `value` is infinite or NaN, else 0
};

// Device memory that Amax works in: the maxima of parts of the array, as bits.
inline constexpr int64_t kMaxAmaxParts = 1024;  // 8 blocks for each of 128 multiprocessors; untuned
struct AmaxWorkspace {
  int32_t parts[kMaxAmaxParts];
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_AMAX_AMAX_TYPES_H_
