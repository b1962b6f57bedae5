#ifndef BRIGADE_KERNELS_AMAX_AMAX_TILE_H_
#define BRIGADE_KERNELS_AMAX_AMAX_TILE_H_

// What one GPU thread does, in plain C++: the CUDA kernels call it, and tests run it on the host.

#include <cstdint>

#include "brigade/kernels/amax/amax_math.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// The elements that a thread loads before it looks at the first: 16 are as many as 32 registers
// hold in a chunk of single elements. Untuned.
inline constexpr int kAmaxPack = 16;

template <typename T>
BRIGADE_HOST_DEVICE auto AmaxLayout(const T* array) {
  return PackLayout<GroupSize(sizeof(T)), kAmaxPack>(array);
}

// The maximum of what thread `thread` of block `block` looks at: its packs of every `blocks`-th
// tile.
template <typename T>
BRIGADE_INLINE int32_t AmaxThread(const T* array, int64_t size, const float* scale_pointer,
                                  int64_t block, int64_t blocks, int thread) {
  const float scale = scale_pointer == nullptr ? 1.0f : *scale_pointer;
  const auto layout = AmaxLayout(array);
  const int64_t tiles = layout.Tiles(size);
  int32_t bits = 0;
  const auto look = [&](const auto& chunk) {
    const auto x = chunk.Load(array);
    for (int j = 0; j < kAmaxPack; ++j) {
      // Not even 0 may stand for an element that is not there: times infinity it is no number.
      if (!chunk.Has(j)) continue;
      bits = LargerBits(bits, MagnitudeBits(static_cast<float>(x.values[j]), scale));
    }
  };
  for (int64_t tile = block; tile < tiles; tile += blocks) {
    layout.ForThread(size, tile, thread, look);
  }
  return bits;
}

// Thread `thread`'s share of the parts of all blocks.
BRIGADE_INLINE int32_t AmaxOfParts(const int32_t* parts, int64_t count, int thread) {
  int32_t bits = 0;
  for (int64_t i = thread; i < count; i += kTileThreads) bits = LargerBits(bits, parts[i]);
  return bits;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_AMAX_AMAX_TILE_H_
