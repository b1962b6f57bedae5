#ifndef BRIGADE_KERNELS_INTERNAL_WARP_H_
#define BRIGADE_KERNELS_INTERNAL_WARP_H_

// What the threads of a warp find out together. For .cu files.

#include <cstdint>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// The largest value of the threads of a warp, for all of them.
struct WarpMax {
  __device__ int32_t operator()(int32_t value) const {
    return __reduce_max_sync(0xffffffffu, value);
  }
  // What a thread of the warp has read before, another one may write behind it.
  __device__ void Barrier() const { __syncwarp(); }
};

// The value that thread `lane` % 32 of the warp has.
struct OfLane {
  __device__ float operator()(float value, uint32_t lane) const {
    return __shfl_sync(0xffffffffu, value, static_cast<int>(lane));
  }
};

// The last halvings of a canonical sum: thread 0 gets the sum of the warp.
__device__ inline double HalveWarp(double sum) {
  for (int half = kWarp / 2; half > 0; half /= 2) {
    sum = precision::Add(sum, __shfl_down_sync(0xffffffffu, sum, half));
  }
  return sum;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_WARP_H_
