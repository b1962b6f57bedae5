// Fill over a list on the GPU: writes only, 16 bytes a store.

#include "brigade/kernels/fill/fill_cuda.h"
#include "brigade/kernels/fill/fill_tile.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

template <int kCapacity>
__global__ void __launch_bounds__(kTileThreads)
    FillKernel(const __grid_constant__ FillArguments<kCapacity> arguments) {
  FillThread(arguments, blockIdx.x, threadIdx.x);
}

}  // namespace

cudaError_t LaunchFill(const FillSegment* segments, int64_t count, FillPattern pattern,
                       int64_t element_bytes, cudaStream_t stream) {
  const auto tiles_of = [&](const FillSegment& s) { return FillTiles(s, element_bytes); };
  return WithCapacity<kMaxFillSegments>(count, [&](auto capacity) {
    FillArguments<capacity> arguments;
    arguments.pattern = pattern;
    arguments.element_bytes = element_bytes;
    return ForEachBatch(
        segments, count, kMaxGridBlocks, tiles_of, arguments.batch, cudaSuccess, [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return LaunchKernel<FillKernel<capacity>>(blocks, kTileThreads, stream, arguments);
        });
  });
}

}  // namespace brigade::kernels
