// Blocks to codes and back on the GPU: reads the source and writes the target once, 4 or 2 bytes an
// element on one side and 1 or 1/2 on the other. A thread has 32 bytes of an array in flight, or 16
// to 32 bytes of codes: 40 to 48 KiB of arrays an SM; codes are the smaller part of what moves.

#include "brigade/kernels/block_quant/block_quant_cuda.h"
#include "brigade/kernels/block_quant/block_quant_tile.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

// As many as take no spills, in 40 and 48 registers; untuned.
template <typename T>
constexpr int kQuantizeBlocksPerSm = sizeof(T) == 4 ? 6 : 5;
constexpr int kDequantizeBlocksPerSm = 6;

template <typename T, QuantFormat kFormat, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kQuantizeBlocksPerSm<T>)
    QuantizeKernel(const __grid_constant__ SegmentBatch<QuantizeSegment, kCapacity> batch) {
  QuantizeThread<T, kFormat>(batch, blockIdx.x, threadIdx.x, WarpMax());
}

template <typename T, QuantFormat kFormat, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kDequantizeBlocksPerSm)
    DequantizeKernel(const __grid_constant__ SegmentBatch<DequantizeSegment, kCapacity> batch) {
  DequantizeThread<T, kFormat>(batch, blockIdx.x, threadIdx.x);
}

// Calls launch(batch, capacity) for each batch of the list.
template <int kBlocks, typename Segment, typename Launch>
cudaError_t ForEachQuantBatch(const Segment* segments, int64_t count, const Launch& launch) {
  return WithCapacity<kMaxQuantSegments>(count, [&](auto capacity) {
    SegmentBatch<Segment, capacity> batch;
    static_assert(sizeof(batch) <= kMaxLaunchArgumentBytes);
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const Segment& s) { return BlockTiles<kBlocks>(s.size); }, batch, cudaSuccess,
        [&](int64_t) { return launch(batch, capacity, static_cast<unsigned>(batch.tiles())); });
  });
}

}  // namespace

template <typename T>
cudaError_t LaunchBlockQuantize(const QuantizeSegment* segments, int64_t count, QuantFormat format,
                                cudaStream_t stream) {
  return ForEachQuantBatch<kQuantizeBlocks>(
      segments, count, [&](const auto& batch, auto capacity, unsigned blocks) {
        return VisitQuantFormat(format, [&](auto constant) {
          return LaunchKernel<QuantizeKernel<T, decltype(constant)::value, capacity>>(
              blocks, kTileThreads, stream, batch);
        });
      });
}

template <typename T>
cudaError_t LaunchBlockDequantize(const DequantizeSegment* segments, int64_t count,
                                  QuantFormat format, cudaStream_t stream) {
  return ForEachQuantBatch<kDequantizeBlocks>(
      segments, count, [&](const auto& batch, auto capacity, unsigned blocks) {
        return VisitQuantFormat(format, [&](auto constant) {
          return LaunchKernel<DequantizeKernel<T, decltype(constant)::value, capacity>>(
              blocks, kTileThreads, stream, batch);
        });
      });
}

#define BRIGADE_INSTANTIATE(T)                                                                  \
  template cudaError_t LaunchBlockQuantize<T>(const QuantizeSegment*, int64_t, QuantFormat,     \
                                              cudaStream_t);                                    \
  template cudaError_t LaunchBlockDequantize<T>(const DequantizeSegment*, int64_t, QuantFormat, \
                                                cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
