#ifndef BRIGADE_KERNELS_INTERNAL_GPU_BLOCKS_H_
#define BRIGADE_KERNELS_INTERNAL_GPU_BLOCKS_H_

// The layout of work in blocks of 256 elements, counted from a segment's begin, of which a warp
// takes one: what codecs do on the GPU. Plain C++.
//
// A thread has 8 elements of a block: two groups of 4, at 4 * lane and 128 elements further, where
// the block lies whole in arrays that begin at a group's boundary; else every 32nd. Either way
// elements j and j + 4 of a thread are 128 apart.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"

namespace brigade::kernels {

inline constexpr int64_t kWarpBlock = 256;
// The elements that a thread moves at once.
inline constexpr int kBlockGroup = 4;
static_assert(kWarpBlock == kWarp * kPackSize);

// Whether warps can take groups of this array.
template <typename T>
BRIGADE_HOST_DEVICE bool HasWholeGroups(const T* array) {
  return reinterpret_cast<uintptr_t>(array) % (kBlockGroup * sizeof(T)) == 0;
}

// How a warp takes a block: the chunks that Load and Store a thread's elements.
struct WholeBlock {
  BRIGADE_INLINE static auto Elements(int64_t block, int lane, int64_t) {
    return WholeChunk<kBlockGroup, kPackSize>(block * kWarpBlock, lane);
  }
};
struct EdgeBlock {
  BRIGADE_INLINE static auto Elements(int64_t block, int lane, int64_t size) {
    return EdgeChunk<kPackSize>(block * kWarpBlock, lane, size);
  }
};

// Tiles of kTileThreads threads, whose warps take kBlocks blocks each.
template <int kBlocks>
BRIGADE_HOST_DEVICE int64_t BlockTiles(int64_t size) {
  return CeilDiv(CeilDiv(size, kWarpBlock), kBlocks * (kTileThreads / kWarp));
}

// Calls run(WholeBlock or EdgeBlock, std::integral_constant(count), first) for the blocks of warp
// `warp` of tile `tile` in a segment: for kAtOnce and kAtOnce of them where they all lie whole in
// arrays with whole groups, else for one after the other.
template <int kBlocks, int kAtOnce = kBlocks, typename Run>
BRIGADE_INLINE void ForBlocks(bool whole_groups, int64_t size, int64_t tile, int warp,
                              const Run& run) {
  static_assert(kBlocks % kAtOnce == 0);
  const int64_t first = (tile * (kTileThreads / kWarp) + warp) * kBlocks;
  if (whole_groups && (first + kBlocks) * kWarpBlock <= size) {
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (int64_t block = first; block < first + kBlocks; block += kAtOnce) {
      run(WholeBlock(), std::integral_constant<int, kAtOnce>(), block);
    }
  } else {
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (int64_t block = first; block < first + kBlocks && block * kWarpBlock < size; ++block) {
      run(EdgeBlock(), std::integral_constant<int, 1>(), block);
    }
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_GPU_BLOCKS_H_
