// What 0/1 Adam does beside Adam, on the GPU. A block has a tile of kTile elements, and a thread
// every 256th of these.

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"

namespace brigade::kernels {
namespace {

// Untuned.
constexpr int64_t kTile = 8 * kTileThreads;
// Segments of 24 bytes, with their first tiles, within a launch's arguments.
constexpr int kMaxSegments = 900;

template <typename Operation, int kCapacity>
struct ElementArguments {
  Operation operation;
  SegmentBatch<typename Operation::Segment, kCapacity> batch;
};

template <typename Operation, int kCapacity>
__global__ void __launch_bounds__(kTileThreads)
    ElementKernel(const __grid_constant__ ElementArguments<Operation, kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const auto& s = batch.segments[index];
  const int64_t begin = (blockIdx.x - batch.first_tile[index]) * kTile;
  const int64_t end = begin + kTile < s.size ? begin + kTile : s.size;
  const auto of_segment = arguments.operation.Begin(s);
  for (int64_t i = begin + threadIdx.x; i < end; i += kTileThreads) {
    arguments.operation.Visit(s, of_segment, i);
  }
}

__global__ void __launch_bounds__(1) RatesKernel(const __grid_constant__ ZeroOneRates rates) {
  if (CountRates(rates) != StepError::kNone) Trap();
}

}  // namespace

template <typename Operation>
cudaError_t LaunchZeroOneElements(const typename Operation::Segment* segments, int64_t count,
                                  const Operation& operation, cudaStream_t stream) {
  static_assert(sizeof(ElementArguments<Operation, kMaxSegments>) <= kMaxLaunchArgumentBytes);
  return WithCapacity<kMaxSegments>(count, [&](auto capacity) {
    ElementArguments<Operation, capacity> arguments;
    arguments.operation = operation;
    return ForEachBatch(
        segments, count, kMaxGridBlocks, [](const auto& s) { return CeilDiv(s.size, kTile); },
        arguments.batch, cudaSuccess,
        [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return LaunchKernel<ElementKernel<Operation, capacity>>(blocks, kTileThreads, stream,
                                                                  arguments);
        });
  });
}

#define BRIGADE_INSTANTIATE(Operation)                                                      \
  template cudaError_t LaunchZeroOneElements<Operation>(const Operation::Segment*, int64_t, \
                                                        const Operation&, cudaStream_t);
BRIGADE_INSTANTIATE(ZeroOneMaskOperation)
BRIGADE_INSTANTIATE(ZeroOneReceiveOperation)
BRIGADE_INSTANTIATE(ZeroOneTakeOperation)
#undef BRIGADE_INSTANTIATE

cudaError_t LaunchZeroOneRates(const ZeroOneRates& rates, cudaStream_t stream) {
  if (!NamesRates(rates)) return cudaErrorInvalidValue;
  return LaunchKernel<RatesKernel>(1u, 1, stream, rates);
}

}  // namespace brigade::kernels
