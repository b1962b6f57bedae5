#ifndef BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_MATH_H_
#define BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_MATH_H_

// The canonical sum of squares, for CUDA, SIMD and scalar code alike. tests/spec/sums.h says the
// same in words and plain loops.

#include <cstdint>

#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One piece of the gradients; a flat range is a list of one. Device memory.
struct GradSegment {
  // [size] of the list's dtype.
  const void* grad;
  int64_t size;
};

// The elements that are summed into one double.
inline constexpr int64_t kGradTile = 8192;
// Element i of a tile enters lane i mod 256.
inline constexpr int kGradLanes = 256;

// The result of a tile with an overflow. Infinity absorbs every later sum, so it is also the list's
// sign.
inline constexpr double kTileOverflow = __builtin_huge_val();

// lane + x^2; the square of a float is exact in double, so this rounds once.
BRIGADE_INLINE double AddSquare(double lane, float x) {
  const double wide = x;
  return precision::Fma(wide, wide, lane);
}

// Whether x is NaN, infinite, or so large that its square overflows float.
BRIGADE_INLINE bool Overflows(float x) { return !(__builtin_fabsf(x) < 0x1p64f); }

// Whether a tile with this sum may hold such a value: its square alone is 2^128. Where this is
// false, the elements need no look of their own.
BRIGADE_INLINE bool MayOverflow(double tile_sum) { return !(tile_sum < 0x1p128); }

BRIGADE_INLINE GradStats StatsOf(double sum) { return {sum, sum < kTileOverflow ? 1 : 0}; }

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_MATH_H_
