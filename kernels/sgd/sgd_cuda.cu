// SGD with momentum over a list on the GPU. Reads param, momentum and the gradient, writes param,
// momentum and the copy: 16 bytes of state per element, plus gradient and copy. A thread takes 8
// elements and has 80 bytes in flight with a 16-bit gradient; 5 blocks of 256 threads on an SM make
// 100 KiB, above the 48 KiB that Hopper's memory needs.

#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/sgd/sgd_cuda.h"

namespace brigade::kernels {
namespace {

constexpr int kBlocksPerSm = 5;  // untuned

template <typename Grad, typename Copy, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    SgdKernel(const __grid_constant__ UpdateArguments<SgdPolicy, kCapacity> arguments) {
  UpdateThread<SgdPolicy, Grad, Copy>(arguments, blockIdx.x, threadIdx.x);
}

}  // namespace

template <typename Grad, typename Copy>
cudaError_t LaunchSgd(const SgdSegment* segments, int64_t count, const SgdParameters& parameters,
                      cudaStream_t stream) {
  if (!NamesStep(parameters) || !HasOwnSteps<SgdPolicy>(parameters, segments, count)) {
    return cudaErrorInvalidValue;
  }
  const auto tiles_of = [](const SgdSegment& s) {
    return UpdateLayout<SgdPolicy, Grad, Copy>(s).Tiles(s.size);
  };
  return WithCapacity<SgdPolicy::kMaxSegments>(count, [&](auto capacity) {
    UpdateArguments<SgdPolicy, capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(segments, count, kMaxGridBlocks, tiles_of, arguments.batch, cudaSuccess,
                        [&](int64_t) {
                          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
                          return LaunchKernel<SgdKernel<Grad, Copy, capacity>>(blocks, kTileThreads,
                                                                               stream, arguments);
                        });
  });
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                        \
  template cudaError_t LaunchSgd<Grad, Copy>(const SgdSegment*, int64_t, const SgdParameters&, \
                                             cudaStream_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
