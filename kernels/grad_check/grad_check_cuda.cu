// Sum of squares and finiteness of a list on the GPU: reads each gradient once, 2 or 4 bytes an
// element, and writes 8 bytes per 8192 of them. A thread has 4 packs of 8 elements in flight, 64
// bytes at 2 bytes an element: 64 KiB an SM at half occupancy. Squares and sums are double: two
// operations of that unit an element, a seventh of what an H200 has at its memory's rate.

#include "brigade/kernels/grad_check/grad_check_cuda.h"
#include "brigade/kernels/grad_check/grad_check_tile.h"

namespace brigade::kernels {
namespace {

constexpr int kWarps = kTileThreads / kWarp;  // tiles of a block
constexpr int kBlocksPerSm = 4;               // untuned: 64 registers, 64 KiB of shared memory

// tile_sums[t]: the sum of one tile, by one warp.
template <typename Grad>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    TileSumsKernel(const __grid_constant__ GradArguments arguments) {
  __shared__ double shared[kWarps][kGradLanes];
  const int warp = threadIdx.x / kWarp;
  const int thread = threadIdx.x % kWarp;
  const int64_t index = int64_t{blockIdx.x} * kWarps + warp;
  if (index >= arguments.batch.tiles()) return;  // the whole warp
  const auto tile = GradTile<Grad>::Find(arguments.batch, index);
  double* const lanes = shared[warp];
  SumLanes(tile, thread, lanes);
  for (int half = kGradLanes / 2; half > 0; half /= 2) {
    __syncwarp();
    HalveLanes(lanes, half, thread, kWarp);
  }
  __syncwarp();
  double sum = lanes[0];
  if (MayOverflow(sum) && __any_sync(0xffffffffu, FindOverflow(tile, thread))) sum = kTileOverflow;
  if (thread == 0) arguments.tile_sums[arguments.tiles_before + index] = sum;
}

// *stats from the sums of all tiles: one block.
__global__ void __launch_bounds__(kGradLanes)
    FinishKernel(const double* tile_sums, int64_t tiles, GradStats* stats) {
  __shared__ double lanes[kGradLanes];
  lanes[threadIdx.x] = SumOfTileSums(tile_sums, tiles, threadIdx.x);
  for (int half = kGradLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    HalveLanes(lanes, half, threadIdx.x, kGradLanes);
  }
  __syncthreads();
  if (threadIdx.x == 0) *stats = StatsOf(lanes[0]);
}

}  // namespace

template <typename Grad>
cudaError_t LaunchGradCheck(const GradSegment* segments, int64_t count, double* workspace,
                            GradStats* stats, cudaStream_t stream) {
  GradArguments arguments;
  arguments.tile_sums = workspace;
  int64_t tiles = 0;
  const cudaError_t error = ForEachBatch(
      segments, count, kMaxGridBlocks, GradTiles, arguments.batch, cudaSuccess,
      [&](int64_t tiles_before) {
        arguments.tiles_before = tiles_before;
        tiles = tiles_before + arguments.batch.tiles();
        const auto blocks = static_cast<unsigned>(CeilDiv(arguments.batch.tiles(), kWarps));
        TileSumsKernel<Grad><<<blocks, kTileThreads, 0, stream>>>(arguments);
        return cudaGetLastError();
      });
  if (error != cudaSuccess) return error;
  FinishKernel<<<1, kGradLanes, 0, stream>>>(workspace, tiles, stats);
  return cudaGetLastError();
}

template cudaError_t LaunchGradCheck<float>(const GradSegment*, int64_t, double*, GradStats*,
                                            cudaStream_t);
template cudaError_t LaunchGradCheck<precision::Half>(const GradSegment*, int64_t, double*,
                                                      GradStats*, cudaStream_t);
template cudaError_t LaunchGradCheck<precision::BFloat16>(const GradSegment*, int64_t, double*,
                                                          GradStats*, cudaStream_t);

}  // namespace brigade::kernels
