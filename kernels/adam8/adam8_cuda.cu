// Adam with moments of 8 bits over a list on the GPU. Reads param, codes, scales and the gradient,
// writes param, codes, scales and the copy: 12 1/16 bytes of state per element, plus gradient and
// copy. A thread has 64 bytes in flight with a 16-bit gradient; 3 blocks of 256 threads on an SM
// (80 registers a thread) make the 48 KiB that Hopper's memory needs.

#include "brigade/kernels/adam8/adam8_cuda.h"
#include "brigade/kernels/adam8/adam8_tile.h"
#include "brigade/kernels/internal/gpu_blocks.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

constexpr int kBlocksPerSm = 3;  // untuned: with 4 some bytes are spilled

template <int kCapacity>
struct Adam8Arguments {
  AdamParameters parameters;
  SegmentBatch<Adam8Segment, kCapacity> batch;
};

template <typename Grad, typename Copy, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    Adam8Kernel(const __grid_constant__ Adam8Arguments<kCapacity> arguments) {
  Adam8Thread<Grad, Copy>(arguments, blockIdx.x, threadIdx.x, WarpMax());
}

}  // namespace

template <typename Grad, typename Copy>
cudaError_t LaunchAdam8(const Adam8Segment* segments, int64_t count,
                        const AdamParameters& parameters, cudaStream_t stream) {
  if (!NamesStep(parameters) || !HasOwnSteps<Adam8Policy>(parameters, segments, count)) {
    return cudaErrorInvalidValue;
  }
  return WithCapacity<Adam8Policy::kMaxSegments>(count, [&](auto capacity) {
    Adam8Arguments<capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const Adam8Segment& s) { return BlockTiles<kAdam8Blocks>(s.size); }, arguments.batch,
        cudaSuccess,
        [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return LaunchKernel<Adam8Kernel<Grad, Copy, capacity>>(blocks, kTileThreads, stream,
                                                                 arguments);
        });
  });
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                      \
  template cudaError_t LaunchAdam8<Grad, Copy>(const Adam8Segment*, int64_t, \
                                               const AdamParameters&, cudaStream_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
