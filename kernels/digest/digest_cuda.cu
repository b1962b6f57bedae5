// The digests of a list on the GPU: reads each byte once. A thread has 4 groups of 16 bytes in
// flight: 64 KiB an SM at half occupancy. A word of 32 bits takes two multiplications and additions
// for each of two sums: 4 instructions for 4 bytes, a third of what an H200 can do at its memory's
// rate. Sums of integers are the same in any order, so that a tile adds its own by two
// atomic additions for 32 KiB.

#include "brigade/kernels/digest/digest_cuda.h"
#include "brigade/kernels/digest/digest_tile.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

constexpr int kWarps = kTileThreads / kWarp;  // tiles of a block
constexpr int kBlocksPerSm = 4;               // untuned: 64 registers

template <int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    DigestKernel(const __grid_constant__ DigestArguments<kCapacity> arguments) {
  const int thread = threadIdx.x % kWarp;
  const int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= arguments.batch.tiles()) return;  // the whole warp
  const int found = arguments.batch.Find(index);
  const DigestSegment& segment = arguments.batch.segments[found];
  uint64_t sums[2] = {0, 0};
  DigestThread(segment, index - arguments.batch.first_tile[found], thread, sums);
  for (int w = 0; w < 2; ++w) {
    unsigned long long sum = sums[w];
    for (int half = kWarp / 2; half > 0; half /= 2) {
      sum += __shfl_down_sync(0xffffffffu, sum, half);
    }
    if (thread == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&arguments.digests[segment.digest].words[w]),
                sum);
    }
  }
}

}  // namespace

cudaError_t LaunchDigest(const DigestSegment* segments, int64_t count, TensorDigest* digests,
                         cudaStream_t stream) {
  return WithCapacity<kMaxDigestSegments>(count, [&](auto capacity) {
    DigestArguments<capacity> arguments;
    arguments.digests = digests;
    return ForEachBatch(
        segments, count, kMaxGridBlocks, DigestTiles, arguments.batch, cudaSuccess, [&](int64_t) {
          const auto blocks = static_cast<unsigned>(CeilDiv(arguments.batch.tiles(), kWarps));
          return LaunchKernel<DigestKernel<capacity>>(blocks, kTileThreads, stream, arguments);
        });
  });
}

}  // namespace brigade::kernels
