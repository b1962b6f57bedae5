// Lion over a list on the GPU. Reads param, m and the gradient, writes param, m and the copy: 16
// bytes of state per element, plus gradient and copy. A thread takes 8 elements and has 80 bytes in
// flight with a 16-bit gradient; 5 blocks of 256 threads on an SM make 100 KiB, above the 48 KiB
// that Hopper's memory needs.

#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/lion/lion_cuda.h"

namespace brigade::kernels {
namespace {

constexpr int kBlocksPerSm = 5;  // untuned

template <typename Grad, typename Copy, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    LionKernel(const __grid_constant__ UpdateArguments<LionPolicy, kCapacity> arguments) {
  UpdateThread<LionPolicy, Grad, Copy>(arguments, blockIdx.x, threadIdx.x);
}

}  // namespace

template <typename Grad, typename Copy>
cudaError_t LaunchLion(const LionSegment* segments, int64_t count, const LionParameters& parameters,
                       cudaStream_t stream) {
  if (!NamesStep(parameters) || !HasOwnSteps<LionPolicy>(parameters, segments, count)) {
    return cudaErrorInvalidValue;
  }
  const auto tiles_of = [](const LionSegment& s) {
    return UpdateLayout<LionPolicy, Grad, Copy>(s).Tiles(s.size);
  };
  return WithCapacity<LionPolicy::kMaxSegments>(count, [&](auto capacity) {
    UpdateArguments<LionPolicy, capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(segments, count, kMaxGridBlocks, tiles_of, arguments.batch, cudaSuccess,
                        [&](int64_t) {
                          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
                          return LaunchKernel<LionKernel<Grad, Copy, capacity>>(
                              blocks, kTileThreads, stream, arguments);
                        });
  });
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                           \
  template cudaError_t LaunchLion<Grad, Copy>(const LionSegment*, int64_t, const LionParameters&, \
                                              cudaStream_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
