#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernel calls it, and tests run it on the host.

#include <cstdint>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/reduce/reduce_math.h"

namespace brigade::kernels {

// Packs of 8 where all arrays lie alike; bytes go one by one.
template <typename T>
BRIGADE_HOST_DEVICE PackLayout ReduceLayout(const ReduceArrays& arrays) {
  PackLayout layout = {0, sizeof(T) >= 2};
  const auto past = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16; };
  const uintptr_t first = past(arrays.sources[0]);
  for (int k = 1; k < arrays.source_count; ++k) layout.vector &= past(arrays.sources[k]) == first;
  for (int k = 0; k < arrays.target_count; ++k) layout.vector &= past(arrays.targets[k]) == first;
  if (layout.vector) layout.shift = static_cast<int64_t>(first / sizeof(T));
  return layout;
}

template <ReduceOp kOp, typename T>
BRIGADE_INLINE void ReduceThread(const ReduceArrays& arrays, PackLayout layout, int64_t tile,
                                 int thread) {
  using Wide = ReduceWide<T>;
  const auto source = [&](int k) { return static_cast<const T*>(arrays.sources[k]); };
  const auto target = [&](int k) { return static_cast<T*>(arrays.targets[k]); };

  const auto pack = [&](int64_t i) {
    Pack8<T> result = LoadPack8(source(0) + i);
    if (arrays.source_count > 1) {
      Wide sums[kPackSize];
      for (int j = 0; j < kPackSize; ++j) sums[j] = static_cast<Wide>(result.values[j]);
      for (int k = 1; k < arrays.source_count; ++k) {
        const Pack8<T> next = LoadPack8(source(k) + i);
        for (int j = 0; j < kPackSize; ++j) {
          sums[j] = ReduceElement<kOp>(sums[j], static_cast<Wide>(next.values[j]));
        }
      }
      for (int j = 0; j < kPackSize; ++j) result.values[j] = T(sums[j]);
    }
    for (int k = 0; k < arrays.target_count; ++k) StorePack8(result, target(k) + i);
  };
  const auto single = [&](int64_t i) {
    T result = source(0)[i];
    if (arrays.source_count > 1) {
      Wide sum = static_cast<Wide>(result);
      for (int k = 1; k < arrays.source_count; ++k) {
        sum = ReduceElement<kOp>(sum, static_cast<Wide>(source(k)[i]));
      }
      result = T(sum);
    }
    for (int k = 0; k < arrays.target_count; ++k) target(k)[i] = result;
  };
  ForThread(arrays.size, layout, tile, thread, pack, single);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_TILE_H_
