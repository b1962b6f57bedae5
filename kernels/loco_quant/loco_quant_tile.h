#ifndef BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_TILE_H_
#define BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_TILE_H_

// What one GPU thread does, in plain C++.

#include <cstdint>

#include "brigade/kernels/block_quant/quant_pack.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/loco_quant/loco_quant_math.h"

namespace brigade::kernels {

// Segments of 32 bytes, with their first tiles, that fill a launch's arguments.
inline constexpr int kMaxLocoSegments = 800;

template <int kCapacity = kMaxLocoSegments>
struct LocoArguments {
  LocoParameters parameters;
  SegmentBatch<LocoSegment, kCapacity> batch;
};
static_assert(sizeof(LocoArguments<>) <= kMaxLaunchArgumentBytes);

// The blocks of a warp, and how many of them share the addresses that they find. Untuned.
inline constexpr int kLocoBlocks = 4;
inline constexpr int kLocoBlocksAtOnce = 2;

// `warp_max` gives the largest value of its argument among the threads of the warp.
template <typename T, QuantFormat kFormat, int kCapacity, typename WarpMax>
BRIGADE_INLINE void LocoQuantizeThread(const LocoArguments<kCapacity>& arguments, int64_t tile,
                                       int thread, const WarpMax& warp_max) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(tile);
  const LocoSegment& s = batch.segments[index];
  const T* const array = static_cast<const T*>(s.array);
  const QuantMessage<uint8_t> error = {static_cast<uint8_t*>(s.error), s.size};
  const QuantMessage<uint8_t> to = {static_cast<uint8_t*>(s.message), s.size};
  const float beta = arguments.parameters.beta, rest = precision::Sub(1.0f, beta);
  const bool forget = arguments.parameters.forget;
  const int lane = thread % kWarp;
  const auto quantize_block = [&](auto kind, int64_t block) {
    using Block = decltype(kind);
    const Pack<float> elements = Widened(Block::Elements(block, lane, s.size).Load(array));
    Pack<float> errors = {};
    if (!forget) {
      const auto codes = CodesOfThread<kLocoErrors>(Block(), block, lane).Load(error.codes());
      // By the thread that replaces it below: no other one reads what that writes.
      const float maximum = lane == 0 ? error.maxima()[block] : 0.0f;
      const int32_t bits = warp_max(__builtin_bit_cast(int32_t, maximum));
      errors = ValuesOf<kLocoErrors>(__builtin_bit_cast(float, bits), codes);
    }
    Pack<float> x;
    for (int j = 0; j < kPackSize; ++j) {
      x.values[j] = WithLocoError(elements.values[j], errors.values[j]);
    }
    const int32_t largest = warp_max(LargestOf(x));
    const auto numbers = StoreBlock<Block, kFormat>(x, largest, to, block, lane);
    // Of a finite block, which alone is looked at, the largest magnitude is the maximum.
    const auto kept = ValuesOf<kFormat>(__builtin_bit_cast(float, largest), numbers);
    for (int j = 0; j < kPackSize; ++j) {
      errors.values[j] = NextLocoError(beta, rest, errors.values[j], x.values[j], kept.values[j]);
    }
    const int32_t largest_error = warp_max(LargestOf(errors));
    if (IsNonFinite(largest)) return;
    StoreBlock<Block, kLocoErrors>(errors, largest_error, error, block, lane);
  };
  const auto quantize = [&](auto kind, auto count, int64_t first) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int b = 0; b < decltype(count)::value; ++b) quantize_block(kind, first + b);
  };
  ForBlocks<kLocoBlocks, kLocoBlocksAtOnce>(
      HasWholeGroups(array), s.size, tile - batch.first_tile[index], thread / kWarp, quantize);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_TILE_H_
