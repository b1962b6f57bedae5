#ifndef BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_TILE_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_TILE_H_

// What one GPU thread does, in plain C++.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/block_quant/quant_pack.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

// The blocks of a warp, and how many of them it loads before it looks at the first: 32 bytes of a
// thread from arrays, and 16 or 32 of codes. Untuned.
inline constexpr int kQuantizeBlocks = 4;
template <typename T>
inline constexpr int kQuantizeBlocksAtOnce = sizeof(T) == 4 ? 1 : 2;
inline constexpr int kDequantizeBlocks = 4;

// Segments of 24 bytes, with their first tiles, that fill a launch's arguments.
inline constexpr int kMaxQuantSegments = 1000;

// `warp_max` gives the largest value of its argument among the threads of the warp.
template <typename T, QuantFormat kFormat, typename Batch, typename WarpMax>
BRIGADE_INLINE void QuantizeThread(const Batch& batch, int64_t tile, int thread,
                                   const WarpMax& warp_max) {
  const int64_t index = batch.Find(tile);
  const QuantizeSegment& s = batch.segments[index];
  const T* const array = static_cast<const T*>(s.array);
  const QuantMessage<uint8_t> to = {static_cast<uint8_t*>(s.message), s.size};
  const int lane = thread % kWarp;
  const auto quantize = [&](auto kind, auto count, int64_t first) {
    using Block = decltype(kind);
    constexpr int kCount = decltype(count)::value;
    Pack<T> packs[kCount];
    for (int b = 0; b < kCount; ++b) {
      packs[b] = Block::Elements(first + b, lane, s.size).Load(array);
    }
    for (int b = 0; b < kCount; ++b) {
      const Pack<float> x = Widened(packs[b]);
      StoreBlock<Block, kFormat>(x, warp_max(LargestOf(x)), to, first + b, lane);
    }
  };
  ForBlocks<kQuantizeBlocks, kQuantizeBlocksAtOnce<T>>(
      HasWholeGroups(array), s.size, tile - batch.first_tile[index], thread / kWarp, quantize);
}

template <typename T, QuantFormat kFormat, typename Batch>
BRIGADE_INLINE void DequantizeThread(const Batch& batch, int64_t tile, int thread) {
  const int64_t index = batch.Find(tile);
  const DequantizeSegment& s = batch.segments[index];
  T* const array = static_cast<T*>(s.array);
  const QuantMessage<const uint8_t> from = {static_cast<const uint8_t*>(s.message), s.size};
  const int lane = thread % kWarp;
  const auto dequantize = [&](auto kind, auto count, int64_t first) {
    using Block = decltype(kind);
    constexpr int kCount = decltype(count)::value;
    float maxima[kCount];
    CodePack<kFormat> codes[kCount];
    for (int b = 0; b < kCount; ++b) {
      maxima[b] = from.maxima()[first + b];
      codes[b] = CodesOfThread<kFormat>(Block(), first + b, lane).Load(from.codes());
    }
    for (int b = 0; b < kCount; ++b) {
      const Pack<T> y = Narrowed<T>(ValuesOf<kFormat>(maxima[b], codes[b]));
      Block::Elements(first + b, lane, s.size).Store(y, array);
    }
  };
  ForBlocks<kDequantizeBlocks>(HasWholeGroups(array), s.size, tile - batch.first_tile[index],
                               thread / kWarp, dequantize);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_TILE_H_
