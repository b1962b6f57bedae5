// The backward pass of tiled attention, without atomics: FlashAttention-2, with the gradients of
// queries in a kernel of their own.
//
// With p = exp(q k^T scale - log_sum_exp), delta = rowsum(dout * out) and
// ds = p (dout v^T - delta):  dv = p^T dout,  dk = scale ds^T q,  dq = scale ds k.
//
// Two kernels compute p and ds again, each in tiles of 64 rows that a block owns by the tiles that
// it goes over: one owns keys and values and goes over queries and dout, from the diagonal on; the
// other owns queries and dout and goes over keys and values, up to the diagonal. They are one body:
//   a = own[0] other[0]^T: scores, of the first kernel transposed;
//   b = own[1] other[1]^T: gradients of the probabilities;
//   sum of other[0] by ds: dk or dq; of other[1] by p: dv, in the first kernel alone.
//
// Work, for a head of width w and t positions: 7 t^2 w flops (four products and three, half of each
// below the diagonal), where one kernel with atomics has 5. Global memory: own rows once, the
// others t / 64 / 2 times on average in each kernel. Shared memory: 128 own rows and twice two
// tiles of the others, since the next ones come while these are multiplied: 64 rows each, or 32
// where heads are wider than 64, so that a block of sm_86 has room: 31, 55, 53 and 69 KiB by w.
// Registers on sm_90, by w: 216, 255, 255, 255 of the keys' kernel, 168 of the queries'; no spills
// on sm_80, 90 and 100 (tests/nn/attention_resources_test.cc). With segments queries have up to
// 242, two blocks on a multiprocessor, and the keys' kernel of heads 128 wide spills 20 bytes. All
// sizes are untuned.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "brigade/nn/attention_cuda.h"
#include "brigade/nn/attention_launch.cuh"
#include "brigade/nn/tensor_cores.cuh"

namespace brigade::nn {
namespace {

// Which rows a block owns.
enum class Owns { kKeys, kQueries };

// As many as leave the registers that are needed: 168 for three, 255 for two. A block of scores,
// whose strides and counts are no constants, needs more for queries too.
template <Owns kOwns, bool kIsWhole, bool kHasSegments>
constexpr int kBlocksPerSm = kOwns == Owns::kKeys || !kIsWhole || kHasSegments ? 2 : 3;

template <int kWidth>
constexpr int kOthers = kWidth <= 64 ? 64 : 32;

template <int kWidth>
struct BackwardMemory {
  using Rows = Tile<kWidth>;
  static constexpr int kOtherBytes = Rows::Bytes(kOthers<kWidth>);
  static constexpr int kNumberBytes = 4 * kOthers<kWidth>;
  static constexpr int kBytes = 2 * Rows::Bytes(kOwnRows) + 4 * kOtherBytes + 4 * kNumberBytes;

  uint32_t begin;

  __device__ Rows own(int i) const { return {begin + i * Rows::Bytes(kOwnRows)}; }
  __device__ Rows other(int buffer, int i) const {
    return {begin + 2 * Rows::Bytes(kOwnRows) + (2 * buffer + i) * kOtherBytes};
  }
  // log_sum_exp and delta of the others.
  __device__ uint32_t numbers(int buffer, int i) const {
    return other(2, 0).address + (2 * buffer + i) * kNumberBytes;
  }
};

__device__ inline float2 LoadPair(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(pair.x), "=f"(pair.y)
               : "r"(address)
               : "memory");
  return pair;
}

template <typename T, typename Out>
struct Pointers {
  const T *queries, *keys, *values, *dout;
  const float *log_sum_exp, *delta;
  // Of queries if those are owned, else of keys and values; how far positions are apart, and
  // whether they are added to.
  Out* own[2];
  int64_t own_stride;
  bool adds;
};

// Out: T for all positions; float for a block of scores, whose queries and keys may differ.
template <typename T, int kWidth, Owns kOwns, typename Out, bool kHasSegments>
__global__ void __launch_bounds__(kAttentionThreads,
                                  kBlocksPerSm<kOwns, std::is_same_v<T, Out>, kHasSegments>)
    AttentionBackwardKernel(const TiledAttentionBlock block, const Pointers<T, Out> pointers,
                            float scale) {
  constexpr bool kOwnsKeys = kOwns == Owns::kKeys, kIsWhole = std::is_same_v<T, Out>;
  static_assert(kIsWhole || !kHasSegments);
  constexpr int kRows = kOthers<kWidth>;
  extern __shared__ uint4 shared[];
  const BackwardMemory<kWidth> memory{SharedAddress(shared)};
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize, lane = thread % kWarpSize;
  const TiledAttentionShape& shape = block.shape;
  const bool causal = kIsWhole || block.causal;
  const int64_t own_rows = kOwnsKeys ? block.keys : block.queries;
  const auto tiles = static_cast<unsigned>(OwnTiles(kIsWhole ? shape.context : own_rows));
  const HeadOfText at(shape, blockIdx.x / tiles);
  const int64_t width = shape.heads * kWidth;
  const int64_t query_stride = kIsWhole ? 3 * width : block.query_stride;
  const int64_t key_stride = kIsWhole ? 3 * width : block.key_stride;

  const auto compute = [&]<typename Index>(Index begin_of_rows, Index rows_of_segment,
                                           Index first) {
    const Index query_count = kIsWhole ? rows_of_segment : static_cast<Index>(block.queries);
    const Index key_count = kIsWhole ? rows_of_segment : static_cast<Index>(block.keys);
    const Index own_count = kOwnsKeys ? key_count : query_count;
    const Index other_count = kOwnsKeys ? query_count : key_count;
    const int64_t first_row = at.first_row + begin_of_rows;
    const T* const queries = pointers.queries + first_row * query_stride + at.head * kWidth;
    const int64_t of_keys = first_row * key_stride + at.head * kWidth;
    const T* const keys = kIsWhole ? queries + width : pointers.keys + of_keys;
    const T* const values = kIsWhole ? queries + 2 * width : pointers.values + of_keys;
    const T* const dout = pointers.dout + first_row * width + at.head * kWidth;
    // Of the queries of this head.
    const int64_t numbers = at.first_row * shape.heads + at.head * shape.context + begin_of_rows;
    const float* const log_sum_exp = pointers.log_sum_exp + numbers;
    const float* const delta = pointers.delta + numbers;

    // Rows of queries and dout, or of keys and values.
    const auto copy = [&]<int kCount>(Tile<kWidth> to, Tile<kWidth> also_to, bool of_queries,
                                      Index begin) {
      const Index left = (of_queries ? query_count : key_count) - begin;
      if (of_queries) {
        CopyRows<kAttentionThreads, kCount>(to, queries + begin * query_stride, query_stride, left);
        CopyRows<kAttentionThreads, kCount>(also_to, dout + begin * width, width, left);
      } else {
        CopyRows<kAttentionThreads, kCount>(to, keys + begin * key_stride, key_stride, left);
        CopyRows<kAttentionThreads, kCount>(also_to, values + begin * key_stride, key_stride, left);
      }
    };
    const auto copy_others = [&](int buffer, Index begin) {
      copy.template operator()<kRows>(memory.other(buffer, 0), memory.other(buffer, 1), kOwnsKeys,
                                      begin);
      if constexpr (kOwnsKeys) {
        if (thread >= 2 * kRows) return;
        const int r = thread % kRows, i = thread / kRows;
        const bool is_there = r < query_count - begin;
        CopyAsync<4>(memory.numbers(buffer, i) + 4 * r,
                     (i == 0 ? log_sum_exp : delta) + (is_there ? begin + r : 0), is_there ? 4 : 0);
      }
    };

    const int row = warp * kWarpRows;
    const Index first_of_warp = first + row;
    // Of the lane's own rows, if they are queries: negative and times log2(e), and delta.
    float shift[2] = {}, deltas[2] = {};
    if constexpr (!kOwnsKeys) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Index query = first_of_warp + lane / 4 + 8 * h;
        if (query >= query_count) continue;
        shift[h] = -log_sum_exp[query] * kLog2E;
        deltas[h] = delta[query];
      }
    }
    const float log2_scale = scale * kLog2E;
    // Of other[0] by ds, of other[1] by p.
    float by_ds[kWidth / 8][4] = {};
    [[maybe_unused]] float by_p[kOwnsKeys ? kWidth / 8 : 1][4] = {};

    const Index begin_of_others = kOwnsKeys && causal ? first : 0;
    const Index end_of_others =
        kOwnsKeys || !causal ? other_count : min(other_count, first + Index{kOwnRows});
    copy.template operator()<kOwnRows>(memory.own(0), memory.own(1), !kOwnsKeys, first);
    copy_others(0, begin_of_others);
    int buffer = 0;
    for (Index begin = begin_of_others; begin < end_of_others; begin += kRows, buffer ^= 1) {
      AwaitCopies();
      // Behind it the copied rows are there, and nobody reads the other buffer any more.
      __syncthreads();
      if (begin + kRows < end_of_others) copy_others(buffer ^ 1, begin + kRows);
      // Of rows `own` of the warp and `other` of the tile, whether the query sees the key: always,
      // or by the place of each; in a block that is not causal, if the key is there.
      const Index ahead = kOwnsKeys ? begin - first_of_warp : first_of_warp - begin;
      const auto is_visible = [&](int own, int other) {
        if (!causal) return kOwnsKeys || other < key_count - begin;
        return (kOwnsKeys ? other - own : own - other) + ahead >= 0;
      };
      const bool is_whole = is_visible(kOwnsKeys ? kWarpRows - 1 : 0, kOwnsKeys ? 0 : kRows - 1);
      if (!is_visible(kOwnsKeys ? 0 : kWarpRows - 1, kOwnsKeys ? kRows - 1 : 0)) continue;

      float p[kRows / 8][4] = {}, ds[kRows / 8][4] = {};
      MultiplyByTransposed<T, kWidth, kRows>(memory.own(0), row, memory.other(buffer, 0), p);
      MultiplyByTransposed<T, kWidth, kRows>(memory.own(1), row, memory.other(buffer, 1), ds);
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
        [[maybe_unused]] const int other = 8 * n + lane % 4 * 2;
        float2 shifts, others;
        if constexpr (kOwnsKeys) {
          shifts = LoadPair(memory.numbers(buffer, 0) + 4 * other);
          shifts = {-shifts.x * kLog2E, -shifts.y * kLog2E};
          others = LoadPair(memory.numbers(buffer, 1) + 4 * other);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float by = kOwnsKeys ? (i % 2 == 0 ? shifts.x : shifts.y) : shift[i / 2];
          const float d = kOwnsKeys ? (i % 2 == 0 ? others.x : others.y) : deltas[i / 2];
          p[n][i] = Exp2(fmaf(p[n][i], log2_scale, by));
          ds[n][i] = p[n][i] * (ds[n][i] - d);
        }
      }
      // Not times 0, which NaN would survive.
      if (!is_whole) {
#pragma unroll
        for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (is_visible(lane / 4 + i / 2 * 8, 8 * n + lane % 4 * 2 + i % 2)) continue;
            p[n][i] = ds[n][i] = 0;
          }
        }
      }
      if constexpr (kOwnsKeys) MultiplyBy<T, kWidth, kRows>(p, memory.other(buffer, 1), by_p);
      MultiplyBy<T, kWidth, kRows>(ds, memory.other(buffer, 0), by_ds);
    }

#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) by_ds[n][i] *= scale;
    }
    const int64_t stride = kIsWhole ? 3 * width : pointers.own_stride;
    const int64_t offset = (first_row + first_of_warp) * stride + at.head * kWidth;
    const int64_t rows = own_count - first_of_warp;
    const auto store = [&](const float(&sums)[kWidth / 8][4], int i) {
      if constexpr (kIsWhole) {
        StoreRows<T, kWidth>(sums, memory.own(i), row, pointers.own[i] + offset, stride, rows);
      } else {
        StoreFloatRows<kWidth>(sums, pointers.own[i] + offset, stride, rows,
                               !kOwnsKeys && pointers.adds);
      }
    };
    store(by_ds, 0);
    if constexpr (kOwnsKeys) store(by_p, 1);
  };
  // The first keys are seen by the most queries, the last queries see the most keys.
  const unsigned slot = blockIdx.x % tiles;
  ForOwnTiles<kHasSegments>(shape, blockIdx.x / tiles, kOwnsKeys ? slot : tiles - 1 - slot,
                            compute);
}

// delta = rowsum(dout * out) for each query of each head: four lanes each, 16 bytes at a time.
constexpr int kDeltaThreads = 256, kDeltaLanes = 4;

template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    AttentionDeltaKernel(const TiledAttentionShape shape, const T* out, const T* dout,
                         float* delta) {
  const int64_t i = (int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / kDeltaLanes;
  const int lane = static_cast<int>(threadIdx.x) % kDeltaLanes;
  // All lanes of the warp take part in the sum.
  const bool is_there = i < shape.batch * shape.context * shape.heads;
  float sum = 0;
  if (is_there) {
    const int64_t first = i * shape.head_width;
    for (int64_t c = first + lane * kChunkElements; c < first + shape.head_width;
         c += kDeltaLanes * kChunkElements) {
      struct alignas(kChunkBytes) Chunk {
        T values[kChunkElements];
      };
      const Chunk a = *reinterpret_cast<const Chunk*>(out + c);
      const Chunk b = *reinterpret_cast<const Chunk*>(dout + c);
#pragma unroll
      for (int k = 0; k < kChunkElements; ++k) {
        sum = fmaf(static_cast<float>(a.values[k]), static_cast<float>(b.values[k]), sum);
      }
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (!is_there || lane != 0) return;
  const int64_t text = i / shape.heads / shape.context, head = i % shape.heads;
  delta[(text * shape.heads + head) * shape.context + i / shape.heads % shape.context] = sum;
}

// Those of keys and values, then those of queries.
template <typename T, typename Out>
cudaError_t LaunchBothKernels(const TiledAttentionBlock& block, const Pointers<T, Out>& keys,
                              const Pointers<T, Out>& queries, cudaStream_t stream) {
  const TiledAttentionShape& shape = block.shape;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_width)));
  return WithHeadWidth(shape.head_width, [&](auto width) {
    const auto launch = [&]<Owns kOwns>(int64_t rows, const Pointers<T, Out>& pointers) {
      const auto with = [&]<bool kHasSegments>() {
        return kernels::LaunchKernelWithMemory<
            AttentionBackwardKernel<T, width, kOwns, Out, kHasSegments>>(
            static_cast<unsigned>(OwnTiles(rows) * shape.heads * shape.batch), kAttentionThreads,
            BackwardMemory<width>::kBytes, stream, block, pointers, scale);
      };
      if constexpr (std::is_same_v<T, Out>) {
        if (shape.segments.exist()) return with.template operator()<true>();
      }
      return with.template operator()<false>();
    };
    const cudaError_t of_keys = launch.template operator()<Owns::kKeys>(block.keys, keys);
    return of_keys != cudaSuccess
               ? of_keys
               : launch.template operator()<Owns::kQueries>(block.queries, queries);
  });
}

}  // namespace

template <typename T>
cudaError_t LaunchTiledAttentionBackward(const TiledAttentionBlock& block, const T* queries,
                                         const T* keys, const T* values, const float* log_sum_exp,
                                         const float* delta, const T* dout, float* dqueries,
                                         bool adds, float* dkeys, float* dvalues,
                                         cudaStream_t stream) {
  const TiledAttentionShape& shape = block.shape;
  const cudaError_t error = CheckTiledAttention(shape, std::max(block.queries, block.keys), queries,
                                                keys, values, dout, dqueries, dkeys, dvalues);
  if (error != cudaSuccess || shape.batch * shape.heads * block.queries * block.keys == 0) {
    return error;
  }
  const int64_t width = shape.heads * shape.head_width;
  return LaunchBothKernels<T, float>(
      block, {queries, keys, values, dout, log_sum_exp, delta, {dkeys, dvalues}, 2 * width, false},
      {queries, keys, values, dout, log_sum_exp, delta, {dqueries, nullptr}, width, adds}, stream);
}

template <typename T>
cudaError_t LaunchTiledAttentionBackward(const TiledAttentionShape& shape, const T* qkv,
                                         const T* out, const float* log_sum_exp, const T* dout,
                                         float* delta, T* dqkv, cudaStream_t stream) {
  cudaError_t error = CheckTiledAttention(shape, shape.context, qkv, out, dout, dqkv);
  const int64_t rows = shape.batch * shape.heads * shape.context;
  if (error != cudaSuccess || rows == 0) return error;
  constexpr int64_t kOfBlock = kDeltaThreads / kDeltaLanes;
  error = kernels::LaunchKernel<AttentionDeltaKernel<T>>(
      static_cast<unsigned>((rows + kOfBlock - 1) / kOfBlock), kDeltaThreads, stream, shape, out,
      dout, delta);
  if (error != cudaSuccess) return error;
  const int64_t width = shape.heads * shape.head_width;
  const Pointers<T, T> of_queries = {qkv,   qkv + width,     qkv + 2 * width, dout, log_sum_exp,
                                     delta, {dqkv, nullptr}, 3 * width,       false};
  Pointers<T, T> of_keys = of_queries;
  of_keys.own[0] = dqkv + width;
  of_keys.own[1] = dqkv + 2 * width;
  return LaunchBothKernels(WholeBlock(shape), of_keys, of_queries, stream);
}

#define BRIGADE_INSTANTIATE(T)                                                                    \
  template cudaError_t LaunchTiledAttentionBackward(                                              \
      const TiledAttentionBlock&, const T*, const T*, const T*, const float*, const float*,       \
      const T*, float*, bool, float*, float*, cudaStream_t);                                      \
  template cudaError_t LaunchTiledAttentionBackward(const TiledAttentionShape&, const T*,         \
                                                    const T*, const float*, const T*, float*, T*, \
                                                    cudaStream_t)
BRIGADE_INSTANTIATE(precision::Half);
BRIGADE_INSTANTIATE(precision::BFloat16);

}  // namespace brigade::nn
