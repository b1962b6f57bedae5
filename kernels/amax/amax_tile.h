#ifndef BRIGADE_KERNELS_AMAX_AMAX_TILE_H_
#define BRIGADE_KERNELS_AMAX_AMAX_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernels call it, and tests run it on the host.

#include <cstdint>

#include "brigade/kernels/amax/amax_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

template <typename T>
BRIGADE_HOST_DEVICE GroupLayout AbsMaxLayout(const T* array) {
  GroupLayoutBuilder builder;
  builder.Add(array);
  return builder.Build();
}

// The maximum of what thread `thread` of block `block` looks at: its groups of every `blocks`-th tile.
template <typename T>
BRIGADE_INLINE int32_t AbsMaxThread(const T* array, int64_t size, const float* scale_pointer,
                                    int64_t block, int64_t blocks, int thread) {
  const float scale = scale_pointer == nullptr ? 1.0f : *scale_pointer;
  const GroupLayout layout = AbsMaxLayout(array);
  const int64_t tiles = GpuTiles(size, layout);
  int32_t bits = 0;
  const auto look = [&](T x) {
    bits = LargerBits(bits, MagnitudeBits(static_cast<float>(x), scale));
  };
  const auto group = [&](int64_t i) {
    const Group<T> x = LoadGroup(array + i);
    for (int j = 0; j < kGroup; ++j) look(x.values[j]);
  };
  const auto single = [&](int64_t i) { look(array[i]); };
  for (int64_t tile = block; tile < tiles; tile += blocks) {
    ForThread(size, layout, tile, thread, group, single);
  }
  return bits;
}

// Thread `thread`'s share of the parts of all blocks.
BRIGADE_INLINE int32_t AbsMaxOfParts(const int32_t* parts, int64_t count, int thread) {
  int32_t bits = 0;
  for (int64_t i = thread; i < count; i += kTileThreads) bits = LargerBits(bits, parts[i]);
  return bits;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_AMAX_AMAX_TILE_H_
