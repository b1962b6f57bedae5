#ifndef BRIGADE_NN_ATTENTION_LAUNCH_CUH_
#define BRIGADE_NN_ATTENTION_LAUNCH_CUH_

// What the kernels of tiled attention have in common: which block does what, and how one is
// launched.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "brigade/kernels/launch_kernel.h"
#include "brigade/nn/attention_cuda.h"

namespace brigade::nn {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kAttentionWarps = kAttentionThreads / 32;
// Rows that a block owns: 16 of each warp.
inline constexpr int kOwnRows = 16 * kAttentionWarps;
inline constexpr float kLog2E = 1.44269504f;

// What of the arrays a block works on.
struct HeadOfText {
  // Of the rows of all texts, and the head.
  int64_t first_row, head;

  __device__ HeadOfText(const TiledAttentionShape& shape, int64_t number)
      : first_row(number / shape.heads * shape.context), head(number % shape.heads) {}
};

constexpr int64_t OwnTiles(int64_t rows) { return (rows + kOwnRows - 1) / kOwnRows; }

// A block's tiles: calls body(begin, rows, first) for each, `first` a row of `rows` ones, counted
// from `begin` of the text. It has one in a text without segments, and with them those that begin
// in its slot: as a rule one, or several short segments, one after the other.
template <bool kHasSegments, typename Body>
__device__ __forceinline__ void ForOwnTiles(const TiledAttentionShape& shape, int64_t number,
                                            int64_t slot, const Body& body) {
  if constexpr (!kHasSegments) {
    body(int64_t{0}, shape.context, slot * kOwnRows);
  } else {
    SegmentTile<kOwnRows>::ForSlot(shape.segments, number / shape.heads, shape.context, slot,
                                   [&](const SegmentTile<kOwnRows>& tile) {
                                     // Nobody reads the shared memory of the one before any more.
                                     __syncthreads();
                                     body(tile.begin, tile.end - tile.begin, tile.first);
                                   });
  }
}

// All positions of an array of queries, keys and values.
inline TiledAttentionBlock WholeBlock(const TiledAttentionShape& shape) {
  const int64_t stride = 3 * shape.heads * shape.head_width;
  return {shape, shape.context, shape.context, true, stride, stride};
}

// Calls run(std::integral_constant<int, head_width>()), one of those that there are.
template <typename Run>
cudaError_t WithHeadWidth(int64_t head_width, const Run& run) {
  if (head_width == 32) return run(std::integral_constant<int, 32>());
  if (head_width == 64) return run(std::integral_constant<int, 64>());
  if (head_width == 96) return run(std::integral_constant<int, 96>());
  return run(std::integral_constant<int, 128>());
}

// OK, or why there is nothing to launch for so many rows that blocks own.
template <typename... Arrays>
cudaError_t CheckTiledAttention(const TiledAttentionShape& shape, int64_t rows,
                                const Arrays*... arrays) {
  if (!HasTiledAttention(shape.head_width)) return cudaErrorNotSupported;
  if (((reinterpret_cast<uintptr_t>(arrays) % kTiledAttentionAlignment != 0) || ...))
    return cudaErrorMisalignedAddress;
  if (shape.batch > 0 &&
      OwnTiles(rows) * shape.heads > std::numeric_limits<int32_t>::max() / shape.batch) {
    return cudaErrorInvalidConfiguration;
  }
  return cudaSuccess;
}

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_LAUNCH_CUH_
