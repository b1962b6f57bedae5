// What 0/1 Adam does beside Adam, on the GPU. A block has a tile of kTile elements, and a thread
// every 256th of these.

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"

namespace brigade::kernels {
namespace {

// Untuned.
constexpr int64_t kTile = 8 * kTileThreads;
// Segments of 24 bytes, with their first tiles, within a launch's arguments.
constexpr int kMaxSegments = 900;

template <int kCapacity>
struct MaskArguments {
  SegmentBatch<ZeroOneMask, kCapacity> batch;
};
static_assert(sizeof(MaskArguments<kMaxSegments>) <= kMaxLaunchArgumentBytes);

template <int kCapacity>
__global__ void __launch_bounds__(kTileThreads)
    MaskKernel(const __grid_constant__ MaskArguments<kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const ZeroOneMask& s = batch.segments[index];
  const int64_t begin = (blockIdx.x - batch.first_tile[index]) * kTile;
  const int64_t end = begin + kTile < s.size ? begin + kTile : s.size;
  for (int64_t i = begin + threadIdx.x; i < end; i += kTileThreads) {
    if (s.second_moment[i] == 0.0f) s.gradient[i] = 0.0f;
  }
}

}  // namespace

cudaError_t LaunchZeroOneAdamMask(const ZeroOneMask* segments, int64_t count, cudaStream_t stream) {
  return WithCapacity<kMaxSegments>(count, [&](auto capacity) {
    MaskArguments<capacity> arguments;
    return ForEachBatch(
        segments, count, kMaxGridBlocks, [](const ZeroOneMask& s) { return CeilDiv(s.size, kTile); },
        arguments.batch, cudaSuccess, [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return LaunchKernel<MaskKernel<capacity>>(blocks, kTileThreads, stream, arguments);
        });
  });
}

}  // namespace brigade::kernels
