#ifndef BRIGADE_KERNELS_INTERNAL_WARP_MAX_H_
#define BRIGADE_KERNELS_INTERNAL_WARP_MAX_H_

// For .cu files.

#include <cstdint>

#include "brigade/kernels/internal/gpu_tile.h"

namespace brigade::kernels {

// The largest value of the threads of a warp, for all of them.
struct WarpMax {
  __device__ int32_t operator()(int32_t value) const {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      const int32_t other = __shfl_xor_sync(0xffffffffu, value, distance);
      value = value < other ? other : value;
    }
    return value;
  }
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_WARP_MAX_H_
