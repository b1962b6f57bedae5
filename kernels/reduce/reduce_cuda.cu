// Reduction on the GPU: reads every source once, writes every target once. A thread takes 8
// elements of all sources, so with two sources of float 64 bytes are in flight per thread and 128
// KiB an SM.

#include "brigade/kernels/reduce/reduce_cuda.h"
#include "brigade/kernels/reduce/reduce_tile.h"

namespace brigade::kernels {
namespace {

template <ReduceOp kOp, typename T, bool kCarries>
__global__ void __launch_bounds__(kTileThreads)
    ReduceKernel(const __grid_constant__ ReduceArrays arrays, PackLayout layout,
                 int64_t first_tile) {
  ReduceThread<kOp, T, kCarries>(arrays, layout, first_tile + blockIdx.x, threadIdx.x);
}

}  // namespace

template <typename T>
cudaError_t LaunchReduce(const ReduceArrays& arrays, ReduceOp op, cudaStream_t stream) {
  const PackLayout layout = ReduceLayout<T>(arrays);
  const int64_t tiles = GpuTiles(arrays.size, layout);
  const bool carries = arrays.carry.in != nullptr || arrays.carry.out != nullptr;
  cudaError_t status = cudaSuccess;
  for (int64_t first = 0; first < tiles && status == cudaSuccess; first += kMaxGridBlocks) {
    const int64_t left = tiles - first;
    const auto blocks = static_cast<unsigned>(left < kMaxGridBlocks ? left : kMaxGridBlocks);
    VisitReduceOp(op, [&](auto constant) {
      constexpr ReduceOp kOp = decltype(constant)::value;
      const auto kernel = carries ? ReduceKernel<kOp, T, true> : ReduceKernel<kOp, T, false>;
      kernel<<<blocks, kTileThreads, 0, stream>>>(arrays, layout, first);
    });
    status = cudaGetLastError();
  }
  return status;
}

#define BRIGADE_INSTANTIATE(T) \
  template cudaError_t LaunchReduce<T>(const ReduceArrays&, ReduceOp, cudaStream_t);
BRIGADE_FOR_EACH_REDUCE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
