// The largest absolute value on the GPU: reads the array once, 4 or 2 bytes an element. A thread
// has 16 elements in flight, 32 or 64 bytes: full occupancy makes 64 to 128 KiB an SM. No atomics:
// one value of each block, then of all.

#include "brigade/kernels/amax/amax_cuda.h"
#include "brigade/kernels/amax/amax_tile.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

constexpr int kBlocksPerSm = 8;  // 2048 threads: full occupancy

// The maximum of the block's threads.
__device__ int32_t BlockMax(int32_t bits) {
  __shared__ int32_t shared[kTileThreads];
  shared[threadIdx.x] = bits;
  for (unsigned half = kTileThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      shared[threadIdx.x] = LargerBits(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
  }
  __syncthreads();
  return shared[0];
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    AmaxKernel(const T* array, int64_t size, const float* scale, int32_t* parts) {
  const int32_t bits = BlockMax(AmaxThread(array, size, scale, blockIdx.x, gridDim.x, threadIdx.x));
  if (threadIdx.x == 0) parts[blockIdx.x] = bits;
}

__global__ void __launch_bounds__(kTileThreads)
    FinishKernel(const int32_t* parts, int64_t count, AmaxResult* result) {
  const int32_t bits = BlockMax(AmaxOfParts(parts, count, threadIdx.x));
  if (threadIdx.x == 0) *result = AmaxOf(bits);
}

}  // namespace

template <typename T>
cudaError_t LaunchAmax(const T* array, int64_t size, const float* scale, AmaxWorkspace* workspace,
                       AmaxResult* result, cudaStream_t stream) {
  const int64_t tiles = AmaxLayout(array).Tiles(size);
  const auto blocks = static_cast<unsigned>(tiles < kMaxAmaxParts ? tiles : kMaxAmaxParts);
  if (blocks > 0) {
    const cudaError_t error = LaunchKernel<AmaxKernel<T>>(blocks, kTileThreads, stream, array, size,
                                                          scale, workspace->parts);
    if (error != cudaSuccess) return error;
  }
  return LaunchKernel<FinishKernel>(1, kTileThreads, stream, workspace->parts, blocks, result);
}

#define BRIGADE_INSTANTIATE(T)                                                                     \
  template cudaError_t LaunchAmax<T>(const T*, int64_t, const float*, AmaxWorkspace*, AmaxResult*, \
                                     cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
