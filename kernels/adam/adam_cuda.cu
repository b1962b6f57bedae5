// AdamW over a list on the GPU. Reads param, m, v and the gradient, writes param, m, v and the
// copy: 24 bytes of state per element, plus gradient and copy. A thread takes 8 elements and has
// 112 bytes in flight with a 16-bit gradient; 4 blocks of 256 threads on an SM (64 registers a
// thread) make 112 KiB, above the 48 KiB that Hopper's memory needs.

#include "brigade/kernels/adam/adam_cuda.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

constexpr int kBlocksPerSm = 4;  // untuned: the largest that leaves 64 registers

template <typename Grad, typename Copy, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    AdamKernel(const __grid_constant__ UpdateArguments<AdamPolicy, kCapacity> arguments) {
  UpdateThread<AdamPolicy, Grad, Copy>(arguments, blockIdx.x, threadIdx.x);
}

}  // namespace

template <typename Grad, typename Copy>
cudaError_t LaunchAdam(const AdamSegment* segments, int64_t count, const AdamParameters& parameters,
                       cudaStream_t stream) {
  if (!NamesStep(parameters) || !HasOwnSteps<AdamPolicy>(parameters, segments, count)) {
    return cudaErrorInvalidValue;
  }
  const auto tiles_of = [](const AdamSegment& s) {
    return UpdateLayout<AdamPolicy, Grad, Copy>(s).Tiles(s.size);
  };
  return WithCapacity<AdamPolicy::kMaxSegments>(count, [&](auto capacity) {
    UpdateArguments<AdamPolicy, capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(segments, count, kMaxGridBlocks, tiles_of, arguments.batch, cudaSuccess,
                        [&](int64_t) {
                          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
                          return LaunchKernel<AdamKernel<Grad, Copy, capacity>>(
                              blocks, kTileThreads, stream, arguments);
                        });
  });
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                           \
  template cudaError_t LaunchAdam<Grad, Copy>(const AdamSegment*, int64_t, const AdamParameters&, \
                                              cudaStream_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
