// Sums of messages on the GPU: reads each message once, 1 or 1/2 bytes an element, and writes the
// target. A thread has the codes of 4 ranks in flight, or of 2 of int8, in two blocks: 32 bytes, 32
// KiB an SM at half of full occupancy.

#include "brigade/kernels/dequant_reduce/dequant_reduce_cuda.h"
#include "brigade/kernels/dequant_reduce/dequant_reduce_tile.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

// 64 registers; sums of int4 codes spill up to 24 bytes. Untuned.
constexpr int kBlocksPerSm = 4;

template <typename Target, QuantFormat kFormat, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    DequantReduceKernel(const __grid_constant__ DequantReduceArguments<kCapacity> arguments) {
  DequantReduceThread<Target, kFormat>(arguments, blockIdx.x, threadIdx.x, WarpMax(), OfLane());
}

}  // namespace

template <typename Target>
cudaError_t LaunchDequantReduce(const DequantReduceSegment* segments, int64_t count,
                                QuantFormat format, const DequantReduceParameters& parameters,
                                cudaStream_t stream) {
  return WithCapacity<kMaxDequantSegments>(count, [&](auto capacity) {
    DequantReduceArguments<capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const DequantReduceSegment& s) { return BlockTiles<kDequantBlocks>(s.size); },
        arguments.batch, cudaSuccess,
        [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return VisitQuantFormat(format, [&](auto constant) {
            return LaunchKernel<DequantReduceKernel<Target, decltype(constant)::value, capacity>>(
                blocks, kTileThreads, stream, arguments);
          });
        });
  });
}

#define BRIGADE_INSTANTIATE(Target)                                                             \
  template cudaError_t LaunchDequantReduce<Target>(const DequantReduceSegment*, int64_t,        \
                                                   QuantFormat, const DequantReduceParameters&, \
                                                   cudaStream_t);
BRIGADE_FOR_EACH_DEQUANT_TARGET(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
