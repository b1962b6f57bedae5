// Reduction on the GPU: reads every source once, writes every target once. A thread takes 8
// elements of all sources, 16 of bytes, so with two sources of float 64 bytes are in flight per
// thread and 128 KiB an SM.

#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/reduce/reduce_cuda.h"
#include "brigade/kernels/reduce/reduce_tile.h"

namespace brigade::kernels {
namespace {

// Untuned: full occupancy where it takes no spills.
template <typename T, bool kCarries>
constexpr int kBlocksPerSm = !kCarries && (sizeof(T) == 2 || sizeof(T) == 4) ? 8 : 4;

template <ReduceOp kOp, typename T, bool kCarries>
__global__ void __launch_bounds__(kTileThreads, (kBlocksPerSm<T, kCarries>))
    ReduceKernel(const __grid_constant__ ReduceArrays arrays,
                 const __grid_constant__ ReducePackLayout<T, kCarries> layout) {
  ReduceThread<kOp, T, kCarries>(arrays, layout, blockIdx.x, threadIdx.x);
}

template <typename T, bool kCarries>
cudaError_t Launch(const ReduceArrays& arrays, ReduceOp op, cudaStream_t stream) {
  const auto layout = ReduceLayout<T, kCarries>(arrays);
  // A grid holds 2^42 elements, more than any memory.
  const auto blocks = static_cast<unsigned>(layout.Tiles(arrays.size));
  cudaError_t status = cudaSuccess;
  if (blocks == 0) return status;
  VisitReduceOp(op, [&](auto constant) {
    constexpr ReduceOp kOp = decltype(constant)::value;
    status =
        LaunchKernel<ReduceKernel<kOp, T, kCarries>>(blocks, kTileThreads, stream, arrays, layout);
  });
  return status;
}

}  // namespace

template <typename T>
cudaError_t LaunchReduce(const ReduceArrays& arrays, ReduceOp op, cudaStream_t stream) {
  const bool carries = arrays.carry.in != nullptr || arrays.carry.out != nullptr;
  return carries ? Launch<T, true>(arrays, op, stream) : Launch<T, false>(arrays, op, stream);
}

#define BRIGADE_INSTANTIATE(T) \
  template cudaError_t LaunchReduce<T>(const ReduceArrays&, ReduceOp, cudaStream_t);
BRIGADE_FOR_EACH_REDUCE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
