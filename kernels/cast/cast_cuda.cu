// Cast over a list on the GPU: reads the source, writes the target, 2 to 4 bytes each an element. A
// thread takes 8 elements, or 16 from 16 bits to 16 bits, so 16 to 32 bytes are in flight per
// thread: 32 to 64 KiB an SM.

#include "brigade/kernels/cast/cast_cuda.h"
#include "brigade/kernels/cast/cast_tile.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

// 2048 threads, full occupancy, where registers allow.
template <typename Source, typename Target>
constexpr int kBlocksPerSm = kCastPack<Source, Target> == kPackSize ? 8 : 6;

template <typename Source, typename Target, bool kAccumulate, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, (kBlocksPerSm<Source, Target>))
    CastKernel(const __grid_constant__ CastArguments<kCapacity> arguments) {
  CastThread<Source, Target, kAccumulate>(arguments, blockIdx.x, threadIdx.x);
}

}  // namespace

template <typename Source, typename Target>
cudaError_t LaunchCast(const CastSegment* segments, int64_t count, const float* scale,
                       bool accumulate, cudaStream_t stream) {
  const auto tiles_of = [](const CastSegment& s) {
    return CastLayout<Source, Target>(s).Tiles(s.size);
  };
  return WithCapacity<kMaxCastSegments>(count, [&](auto capacity) {
    CastArguments<capacity> arguments;
    arguments.scale = scale;
    return ForEachBatch(
        segments, count, kMaxGridBlocks, tiles_of, arguments.batch, cudaSuccess, [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return accumulate ? LaunchKernel<CastKernel<Source, Target, true, capacity>>(
                                  blocks, kTileThreads, stream, arguments)
                            : LaunchKernel<CastKernel<Source, Target, false, capacity>>(
                                  blocks, kTileThreads, stream, arguments);
        });
  });
}

#define BRIGADE_INSTANTIATE(Source, Target)                                                        \
  template cudaError_t LaunchCast<Source, Target>(const CastSegment*, int64_t, const float*, bool, \
                                                  cudaStream_t);
BRIGADE_FOR_EACH_CAST_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
