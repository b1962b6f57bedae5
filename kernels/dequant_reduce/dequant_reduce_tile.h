#ifndef BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_TILE_H_
#define BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_TILE_H_

// What one GPU thread does, in plain C++.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/block_quant/quant_pack.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_math.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

// The blocks of a warp, and how many of them it takes at once; the ranks whose codes of these it
// loads before it adds them, 16 bytes a thread and block. Untuned.
inline constexpr int kDequantBlocks = 4;
inline constexpr int kDequantBlocksAtOnce = 2;
template <QuantFormat kFormat>
inline constexpr int kRanksAtOnce = 16 / kCodeBytes<kFormat>;

// Segments of 24 bytes, with their first tiles, that fill a launch's arguments.
inline constexpr int kMaxDequantSegments = 1000;

template <int kCapacity = kMaxDequantSegments>
struct DequantReduceArguments {
  DequantReduceParameters parameters;
  SegmentBatch<DequantReduceSegment, kCapacity> batch;
};
static_assert(sizeof(DequantReduceArguments<>) <= kMaxLaunchArgumentBytes);

// `warp_max` gives the largest value of its argument among the threads of the
// warp, of_lane(x, i) the x of its thread i % 32.
//
// A block of int4 codes has 16 values: each thread finds the value of one code, and takes others
// from those that have them.
template <typename Target, QuantFormat kFormat, int kCapacity, typename WarpMax, typename OfLane>
BRIGADE_INLINE void DequantReduceThread(const DequantReduceArguments<kCapacity>& arguments,
                                        int64_t tile, int thread,
                                        [[maybe_unused]] const WarpMax& warp_max,
                                        [[maybe_unused]] const OfLane& of_lane) {
  const auto& batch = arguments.batch;
  const DequantReduceParameters& p = arguments.parameters;
  const int64_t index = batch.Find(tile);
  const DequantReduceSegment& s = batch.segments[index];
  const int lane = thread % kWarp;
  const auto reduce = [&](auto kind, auto count, int64_t first) {
    using Block = decltype(kind);
    constexpr int kCount = decltype(count)::value;
    Pack<float> sums[kCount];
    // The one number that changes no other.
    for (Pack<float>& of_block : sums) {
      for (float& sum : of_block.values) sum = -0.0f;
    }
    const auto add = [&](auto ranks, int64_t rank) {
      constexpr int kRanks = decltype(ranks)::value;
      float maxima[kRanks][kCount];
      CodePack<kFormat> codes[kRanks][kCount];
      for (int r = 0; r < kRanks; ++r) {
        const QuantMessage<const uint8_t> from = {
            static_cast<const uint8_t*>(s.messages) + (rank + r) * p.stride, s.size};
        for (int b = 0; b < kCount; ++b) {
          maxima[r][b] = from.maxima()[first + b];
          codes[r][b] = CodesOfThread<kFormat>(Block(), first + b, lane).Load(from.codes());
        }
      }
      for (int r = 0; r < kRanks; ++r) {
        for (int b = 0; b < kCount; ++b) {
          const Pack<float> values = [&] {
            if constexpr (kFormat == QuantFormat::kInt8) {
              return ValuesOf<kFormat>(maxima[r][b], codes[r][b]);
            } else {
              const auto own_code = LowCode(static_cast<uint8_t>(lane));
              const float own = ValueOf<kFormat>(maxima[r][b], own_code);
              Pack<float> of_others;
              for (int j = 0; j < kPackSize; ++j) {
                of_others.values[j] = of_lane(own, WordOf(codes[r][b]) >> Int4Shift(j));
              }
              return of_others;
            }
          }();
          for (int j = 0; j < kPackSize; ++j) {
            sums[b].values[j] = precision::Add(sums[b].values[j], values.values[j]);
          }
        }
      }
    };
    constexpr int kAtOnce = kRanksAtOnce<kFormat>;
    int64_t rank = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (; rank + kAtOnce <= p.ranks; rank += kAtOnce) {
      add(std::integral_constant<int, kAtOnce>(), rank);
    }
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (; rank < p.ranks; ++rank) add(std::integral_constant<int, 1>(), rank);
    for (int b = 0; b < kCount; ++b) {
      const int64_t block = first + b;
      for (float& sum : sums[b].values) sum = precision::Mul(sum, p.factor);
      if constexpr (kIsMessage<Target>) {
        StoreBlock<Block, Target::kTargetFormat>(sums[b], warp_max(LargestOf(sums[b])),
                                                 {static_cast<uint8_t*>(s.target), s.size}, block,
                                                 lane);
      } else {
        Block::Elements(block, lane, s.size)
            .Store(Narrowed<Target>(sums[b]), static_cast<Target*>(s.target));
      }
    }
  };
  const int64_t in_segment = tile - batch.first_tile[index];
  if constexpr (kIsMessage<Target>) {
    // The blocks of messages are whole.
    ForBlocks<kDequantBlocks, kDequantBlocksAtOnce>(true, QuantBlocks(s.size) * kQuantBlock,
                                                    in_segment, thread / kWarp, reduce);
  } else {
    ForBlocks<kDequantBlocks, kDequantBlocksAtOnce>(
        HasWholeGroups(static_cast<const Target*>(s.target)), s.size, in_segment, thread / kWarp,
        reduce);
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_TILE_H_
