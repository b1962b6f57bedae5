// The forward pass of tiled attention: FlashAttention-2.
//
// A block has 64 queries of a head, 16 of each warp, and goes over the tiles of 64 keys and values
// up to the diagonal. A warp keeps the output of its queries, their largest score and the sum of
// their exponentials in registers; scores exist for one tile at a time.
//
// Work, for a head of width w and t positions: 2 t^2 w flops (two products, half of each below the
// diagonal). Global memory: 4 t w numbers once, keys and values again for each later tile of
// queries, t / 64 / 2 times on average, mostly from the second-level cache: 32 flops for each byte
// of them. Shared memory: 192 rows, 15 KiB (w = 32) to 51 KiB (w = 128), without bank conflicts
// but in copies of rows that are no multiple of 128 bytes (tests/nn/attention_counters_test.cc).
// A warp reads each tile as a whole for its 16 queries: 16 flops for each byte of shared memory,
// as many as the tensor cores of sm_80 do in the time, and half of those of sm_90; more would take
// 32 queries a warp. Copies alternate between two buffers: values come while scores are computed,
// the next keys while the values are multiplied.
// Registers on sm_90, by w: 126, 168, 168, 244; no spills on sm_80, 90 and 100
// (tests/nn/attention_resources_test.cc); with segments 144, 168, 246 and 246. All sizes are
// untuned.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "brigade/nn/attention_cuda.h"
#include "brigade/nn/attention_launch.cuh"
#include "brigade/nn/tensor_cores.cuh"

namespace brigade::nn {
namespace {

constexpr int kKeys = 64;
// As many as leave the registers that are needed: 168 for three, 255 for two.
template <int kWidth, bool kHasSegments>
constexpr int kBlocksPerSm = kWidth <= (kHasSegments ? 64 : 96) ? 3 : 2;

template <int kWidth>
struct ForwardMemory {
  using Rows = Tile<kWidth>;
  static constexpr int kBytes = Rows::Bytes(kOwnRows + 2 * kKeys);

  Rows queries, keys, values;

  __device__ explicit ForwardMemory(uint32_t begin)
      : queries{begin},
        keys{begin + Rows::Bytes(kOwnRows)},
        values{begin + Rows::Bytes(kOwnRows + kKeys)} {}
};

// The softmax of a warp's 16 rows over the tiles so far: of rows g and g + 8 of a lane's group.
struct RunningSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  // Of the lane's own columns.
  float sum[2] = {0, 0};

  // Scores of a tile, times `scale` and log2(e), become exponentials by the new maximum; what was
  // made with the old one is multiplied by the factor that is returned for each row.
  template <int kTiles>
  __device__ void Add(float scale, float (&scores)[kTiles][4], float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = max[h];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        largest = fmaxf(largest, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
      }
      // The four lanes that share the row.
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      // Finite: the first tile has a visible key for every row.
      const float shift = -largest * scale;
      factor[h] = Exp2(fmaf(max[h], scale, shift));
      max[h] = largest;
      sum[h] *= factor[h];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          scores[n][i] = Exp2(fmaf(scores[n][i], scale, shift));
          sum[h] += scores[n][i];
        }
      }
    }
  }

  // Of all columns.
  __device__ float Total(int h) const {
    float total = sum[h] + __shfl_xor_sync(0xffffffffu, sum[h], 1);
    return total + __shfl_xor_sync(0xffffffffu, total, 2);
  }
};

// A block of scores has the same body, with keys and queries that differ, and a result in fp32.
template <typename T, int kWidth, typename Out, bool kHasSegments>
__global__ void __launch_bounds__(kAttentionThreads, kBlocksPerSm<kWidth, kHasSegments>)
    AttentionKernel(const TiledAttentionBlock block, const T* all_queries, const T* all_keys,
                    const T* all_values, Out* out, float* log_sum_exp, float scale) {
  constexpr bool kIsWhole = std::is_same_v<T, Out>;
  static_assert(kIsWhole || !kHasSegments);
  extern __shared__ uint4 shared[];
  const ForwardMemory<kWidth> memory(SharedAddress(shared));
  const TiledAttentionShape& shape = block.shape;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const bool causal = kIsWhole || block.causal;
  const auto tiles = static_cast<unsigned>(OwnTiles(kIsWhole ? shape.context : block.queries));
  const HeadOfText at(shape, blockIdx.x / tiles);
  const int64_t width = shape.heads * kWidth;
  const int64_t query_stride = kIsWhole ? 3 * width : block.query_stride;
  const int64_t key_stride = kIsWhole ? 3 * width : block.key_stride;

  const auto compute = [&]<typename Index>(Index begin_of_rows, Index rows_of_segment,
                                           Index first) {
    const Index query_count = kIsWhole ? rows_of_segment : static_cast<Index>(block.queries);
    const Index key_count = kIsWhole ? rows_of_segment : static_cast<Index>(block.keys);
    const int64_t first_row = at.first_row + begin_of_rows;
    const T* const queries = all_queries + (first_row + first) * query_stride + at.head * kWidth;
    const int64_t of_keys = first_row * key_stride + at.head * kWidth;
    const T* const keys = all_keys + of_keys;
    const T* const values = all_values + of_keys;
    const auto copy = [&](Tile<kWidth> to, const T* from, int64_t begin) {
      CopyRows<kAttentionThreads, kKeys>(to, from + begin * key_stride, key_stride,
                                         key_count - begin);
    };

    CopyRows<kAttentionThreads, kOwnRows>(memory.queries, queries, query_stride,
                                          query_count - first);
    copy(memory.keys, keys, 0);
    float sums[kWidth / 8][4] = {};
    RunningSoftmax softmax;
    const float log2_scale = scale * kLog2E;
    const int row = warp * kWarpRows;
    // The tile of the diagonal is the last one.
    static_assert(kKeys == kOwnRows);
    const Index last = causal ? first : (key_count - 1) / kKeys * kKeys;
    for (Index begin = 0; begin <= last; begin += kKeys) {
      AwaitCopies();
      __syncthreads();
      copy(memory.values, values, begin);
      float scores[kKeys / 8][4] = {};
      MultiplyByTransposed<T, kWidth, kKeys>(memory.queries, row, memory.keys, scores);
      if (begin == last) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int query = row + lane / 4 + i / 2 * 8, key = 8 * n + lane % 4 * 2 + i % 2;
            if (causal ? key > query : key >= key_count - begin) scores[n][i] = -INFINITY;
          }
        }
      }
      float factor[2];
      softmax.Add(log2_scale, scores, factor);
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] *= factor[i / 2];
      }
      AwaitCopies();
      __syncthreads();
      if (begin < last) copy(memory.keys, keys, begin + kKeys);
      MultiplyBy<T, kWidth, kKeys>(scores, memory.values, sums);
    }

    const int64_t rows = query_count - first - row;
    float* const of_rows = log_sum_exp + (at.first_row * shape.heads + at.head * shape.context) +
                           begin_of_rows + first + row;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = softmax.Total(h), inverse = 1 / total;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        sums[n][2 * h] *= inverse;
        sums[n][2 * h + 1] *= inverse;
      }
      const int r = lane / 4 + 8 * h;
      if (lane % 4 == 0 && r < rows) of_rows[r] = fmaf(softmax.max[h], scale, logf(total));
    }
    Out* const to = out + (first_row + first + row) * width + at.head * kWidth;
    if constexpr (kIsWhole) {
      StoreRows<T, kWidth>(sums, memory.queries, row, to, width, rows);
    } else {
      StoreFloatRows<kWidth>(sums, to, width, rows, /*adds=*/false);
    }
  };
  // The last queries see the most keys: their blocks come first.
  ForOwnTiles<kHasSegments>(shape, blockIdx.x / tiles, tiles - 1 - blockIdx.x % tiles, compute);
}

}  // namespace

template <typename T, typename Out>
cudaError_t LaunchTiledAttention(const TiledAttentionBlock& block, const T* queries, const T* keys,
                                 const T* values, Out* out, float* log_sum_exp,
                                 cudaStream_t stream) {
  const TiledAttentionShape& shape = block.shape;
  const cudaError_t error = CheckTiledAttention(shape, block.queries, queries, keys, values, out);
  if (error != cudaSuccess || shape.batch * shape.heads * block.queries == 0) return error;
  const auto blocks = static_cast<unsigned>(OwnTiles(block.queries) * shape.heads * shape.batch);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_width)));
  return WithHeadWidth(shape.head_width, [&](auto width) {
    const auto launch = [&]<bool kHasSegments>() {
      return kernels::LaunchKernelWithMemory<AttentionKernel<T, width, Out, kHasSegments>>(
          blocks, kAttentionThreads, ForwardMemory<width>::kBytes, stream, block, queries, keys,
          values, out, log_sum_exp, scale);
    };
    if constexpr (std::is_same_v<T, Out>) {
      if (shape.segments.exist()) return launch.template operator()<true>();
    }
    return launch.template operator()<false>();
  });
}

template <typename T>
cudaError_t LaunchTiledAttention(const TiledAttentionShape& shape, const T* qkv, T* out,
                                 float* log_sum_exp, cudaStream_t stream) {
  const int64_t width = shape.heads * shape.head_width;
  return LaunchTiledAttention(WholeBlock(shape), qkv, qkv + width, qkv + 2 * width, out,
                              log_sum_exp, stream);
}

#define BRIGADE_INSTANTIATE(T)                                                                    \
  template cudaError_t LaunchTiledAttention<T, T>(const TiledAttentionBlock&, const T*, const T*, \
                                                  const T*, T*, float*, cudaStream_t);            \
  template cudaError_t LaunchTiledAttention<T, float>(                                            \
      const TiledAttentionBlock&, const T*, const T*, const T*, float*, float*, cudaStream_t);    \
  template cudaError_t LaunchTiledAttention<T>(const TiledAttentionShape&, const T*, T*, float*,  \
                                               cudaStream_t)
BRIGADE_INSTANTIATE(precision::Half);
BRIGADE_INSTANTIATE(precision::BFloat16);

}  // namespace brigade::nn
