// Blocks with their errors to codes and next errors on the GPU: reads 4 or 2 bytes of the array and
// 1 of the error an element, writes 1 of the error and 1 or 1/2 of the message. A thread has 48 to
// 80 bytes in flight, 48 to 80 KiB an SM at half of full occupancy. On an H200 it is no copy: warps
// wait for what their shuffles bring (docs/performance.md).

#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/loco_quant/loco_quant_cuda.h"
#include "brigade/kernels/loco_quant/loco_quant_tile.h"

namespace brigade::kernels {
namespace {

constexpr int kBlocksPerSm = 4;  // 64 registers, without spills; untuned

template <typename T, QuantFormat kFormat, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    LocoQuantizeKernel(const __grid_constant__ LocoArguments<kCapacity> arguments) {
  LocoQuantizeThread<T, kFormat>(arguments, blockIdx.x, threadIdx.x, WarpMax());
}

}  // namespace

template <typename T>
cudaError_t LaunchLocoQuantize(const LocoSegment* segments, int64_t count, QuantFormat format,
                               const LocoParameters& parameters, cudaStream_t stream) {
  return WithCapacity<kMaxLocoSegments>(count, [&](auto capacity) {
    LocoArguments<capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const LocoSegment& s) { return BlockTiles<kLocoBlocks>(s.size); }, arguments.batch,
        cudaSuccess,
        [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return VisitQuantFormat(format, [&](auto constant) {
            return LaunchKernel<LocoQuantizeKernel<T, decltype(constant)::value, capacity>>(
                blocks, kTileThreads, stream, arguments);
          });
        });
  });
}

#define BRIGADE_INSTANTIATE(T)                                                         \
  template cudaError_t LaunchLocoQuantize<T>(const LocoSegment*, int64_t, QuantFormat, \
                                             const LocoParameters&, cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
