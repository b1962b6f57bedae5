// Sums of sparse messages on the GPU: a block has a tile of the output in shared memory, and goes
// through the ranks' messages in order. The output is written once, in one pass; where the tile
// begins in each message, threads find side by side.

#include "brigade/collectives/compressed/sparse_mean_cuda.h"
#include "brigade/collectives/compressed/sparse_mean_math.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/precision/float16.h"
#include "brigade/precision/rounding.h"

namespace brigade::collectives {
namespace {

constexpr int kThreads = 256;    // untuned
constexpr int64_t kTile = 4096;  // 16 KiB of shared memory; untuned
// Ranks whose messages are searched at once: a thread for begin and end of each.
constexpr int kTogether = kThreads / 2;

__device__ bool IsFinite(float x) {
  return (__builtin_bit_cast(uint32_t, x) & 0x7f800000u) != 0x7f800000u;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SparseMeanKernel(SparseMessages messages, float factor, T* output, int64_t size,
                     int32_t* non_finite) {
  __shared__ float sums[kTile];
  __shared__ int64_t bounds[kThreads];
  __shared__ uint32_t bad;
  const int64_t begin = int64_t{blockIdx.x} * kTile;
  const int64_t end = begin + kTile < size ? begin + kTile : size;
  const int count = static_cast<int>(end - begin);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < count; i += kThreads) sums[i] = 0;
  if (thread == 0) bad = 0;
  for (int first = 0; first < messages.ranks; first += kTogether) {
    const int searched = first + thread / 2;
    if (searched < messages.ranks) {
      bounds[thread] =
          FirstIndexFrom(messages.indices(searched), messages.k, thread % 2 == 0 ? begin : end);
    }
    __syncthreads();
    for (int rank = first; rank < messages.ranks && rank < first + kTogether; ++rank) {
      const int32_t* const indices = messages.indices(rank);
      const float* const values = messages.values(rank);
      const int64_t last = bounds[2 * (rank - first) + 1];
      for (int64_t i = bounds[2 * (rank - first)] + thread; i < last; i += kThreads) {
        // Of a message that did not come they are any numbers.
        const int64_t at = indices[i] - begin;
        if (at < 0 || at >= count) continue;
        sums[at] = precision::Add(sums[at], values[i]);
      }
      // The next rank's values are other threads'; and so are the next bounds.
      __syncthreads();
    }
  }
  __syncthreads();
  for (int i = thread; i < count; i += kThreads) {
    const float mean = precision::Mul(sums[i], factor);
    if (!IsFinite(mean)) atomicAdd(&bad, 1u);
    output[begin + i] = static_cast<T>(mean);
  }
  __syncthreads();
  // A block counts once: there are fewer blocks than the flag has numbers.
  if (thread == 0 && bad != 0) atomicAdd(non_finite, 1);
}

}  // namespace

template <typename T>
cudaError_t LaunchSparseMean(const SparseMessages& messages, float factor, T* output, int64_t size,
                             int32_t* non_finite, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((size + kTile - 1) / kTile);
  return kernels::LaunchKernel<SparseMeanKernel<T>>(blocks, kThreads, stream, messages, factor,
                                                    output, size, non_finite);
}

template cudaError_t LaunchSparseMean(const SparseMessages&, float, float*, int64_t, int32_t*,
                                      cudaStream_t);
template cudaError_t LaunchSparseMean(const SparseMessages&, float, precision::Half*, int64_t,
                                      int32_t*, cudaStream_t);
template cudaError_t LaunchSparseMean(const SparseMessages&, float, precision::BFloat16*, int64_t,
                                      int32_t*, cudaStream_t);

}  // namespace brigade::collectives
