#ifndef BRIGADE_KERNELS_INTERNAL_HALVE_LANES_H_
#define BRIGADE_KERNELS_INTERNAL_HALVE_LANES_H_

#include "brigade/kernels/simd.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// The sum of the first 2 * kHalf lanes, each of the first half added to its counterpart in the
// second, until one is left; changes them. Of constant lengths, which take a fifth of the time of
// lengths that vary.
template <int kHalf, typename T>
BRIGADE_INLINE T HalveFrom(T* lanes) {
  BRIGADE_SIMD_LOOP
  for (int l = 0; l < kHalf; ++l) lanes[l] = precision::Add(lanes[l], lanes[l + kHalf]);
  if constexpr (kHalf > 1) {
    return HalveFrom<kHalf / 2>(lanes);
  } else {
    return lanes[0];
  }
}

// The same of all lanes, a power of two.
template <typename T, int kLanes>
BRIGADE_INLINE T Halve(T (&lanes)[kLanes]) {
  return HalveFrom<kLanes / 2>(lanes);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_HALVE_LANES_H_
