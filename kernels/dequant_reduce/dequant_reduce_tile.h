#ifndef BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_TILE_H_
#define BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_TILE_H_

// What one GPU thread does, in plain C++.

#include <cstdint>

#include "brigade/kernels/block_quant/quant_pack.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_math.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

// The ranks whose codes a thread loads before it adds them. Untuned.
inline constexpr int kRanksAtOnce = 4;

// Segments of 24 bytes, with their first tiles, that fill a launch's arguments.
inline constexpr int kMaxDequantSegments = 1000;

template <int kCapacity = kMaxDequantSegments>
struct DequantReduceArguments {
  DequantReduceParameters parameters;
  SegmentBatch<DequantReduceSegment, kCapacity> batch;
};
static_assert(sizeof(DequantReduceArguments<>) <= kMaxLaunchArgumentBytes);

// A warp takes a block. `warp_max` gives the largest value of its argument among the threads of the
// warp.
template <typename Target, QuantFormat kFormat, int kCapacity, typename WarpMax>
BRIGADE_INLINE void DequantReduceThread(const DequantReduceArguments<kCapacity>& arguments,
                                        int64_t tile, int thread,
                                        [[maybe_unused]] const WarpMax& warp_max) {
  const auto& batch = arguments.batch;
  const DequantReduceParameters& p = arguments.parameters;
  const int64_t index = batch.Find(tile);
  const DequantReduceSegment& s = batch.segments[index];
  const int lane = thread % kWarp;
  const auto reduce = [&](auto kind, auto, int64_t block) {
    using Block = decltype(kind);
    Pack<float> sums = {};
    [[maybe_unused]] constexpr int kAtOnce = kRanksAtOnce;
#ifdef __CUDA_ARCH__
#pragma unroll kAtOnce
#endif
    for (int64_t rank = 0; rank < p.ranks; ++rank) {
      const QuantMessage<const uint8_t> from = {
          static_cast<const uint8_t*>(s.messages) + rank * p.stride, s.size};
      const float maximum = from.maxima()[block];
      const auto codes = CodesOfThread<kFormat>(Block(), block, lane).Load(from.codes());
      const Pack<float> values = ValuesOf<kFormat>(maximum, codes);
      for (int j = 0; j < kPackSize; ++j) {
        sums.values[j] =
            rank == 0 ? values.values[j] : precision::Add(sums.values[j], values.values[j]);
      }
    }
    for (float& sum : sums.values) sum = precision::Mul(sum, p.factor);
    if constexpr (kIsMessage<Target>) {
      StoreBlock<Block, Target::kTargetFormat>(
          sums, warp_max(LargestOf(sums)), {static_cast<uint8_t*>(s.target), s.size}, block, lane);
    } else {
      Block::Elements(block, lane, s.size)
          .Store(Narrowed<Target>(sums), static_cast<Target*>(s.target));
    }
  };
  const int64_t in_segment = tile - batch.first_tile[index];
  if constexpr (kIsMessage<Target>) {
    // The blocks of messages are whole.
    ForBlocks<1, 1>(true, QuantBlocks(s.size) * kQuantBlock, in_segment, thread / kWarp, reduce);
  } else {
    ForBlocks<1, 1>(HasWholeGroups(static_cast<const Target*>(s.target)), s.size, in_segment,
                    thread / kWarp, reduce);
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_TILE_H_
