// Sum of squares and finiteness of a list on the GPU: reads each gradient once, 2 or 4 bytes an
// element, and writes 8 bytes per 8192 of them. A thread has 4 packs of 8 elements in flight, 64
// bytes at 2 bytes an element: 64 KiB an SM at half occupancy. A square is added in
// double by one fused instruction an element: at an H200's memory rate a seventh of what it has of
// them at 2 bytes an element. The conversion to double beside it is not counted in that.

#include "brigade/kernels/grad_check/grad_check_cuda.h"
#include "brigade/kernels/grad_check/grad_check_tile.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

constexpr int kWarps = kTileThreads / kWarp;  // tiles of a block
constexpr int kBlocksPerSm = 4;               // untuned: 64 registers, 68 KiB of shared memory
// Loads in flight of a thread of the last steps, untuned.
constexpr int kLoadsOfBlock = 16;
constexpr int kLoadsOfLane = 64;  // ptxas 13.0 keeps 23 of them in flight all the time

// tile_sums[t]: the sum of one tile, by one warp.
template <typename Grad, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm)
    TileSumsKernel(const __grid_constant__ GradArguments<kCapacity> arguments) {
  __shared__ double shared[kWarps][kLanePlaces];
  const int warp = threadIdx.x / kWarp;
  const int thread = threadIdx.x % kWarp;
  const int64_t index = int64_t{blockIdx.x} * kWarps + warp;
  if (index >= arguments.batch.tiles()) return;  // the whole warp
  const auto tile = GradTile<Grad>::Find(arguments.batch, index);
  SumLanes(tile, thread, shared[warp]);
  __syncwarp();
  const double halved = HalveWarp(HalveToWarp(shared[warp], thread));
  double sum = __shfl_sync(0xffffffffu, halved, 0);
  if (MayOverflow(sum) && __any_sync(0xffffffffu, FindOverflow(tile, thread))) sum = kTileOverflow;
  if (thread == 0) arguments.tile_sums[arguments.tiles_before + index] = sum;
}

// The lanes of the sum of all tile sums, in place of the first of these. Each warp has a
// multiprocessor to itself, and so registers for as many loads in flight.
__global__ void __launch_bounds__(kWarp) LaneSumsKernel(double* tile_sums, int64_t tiles) {
  const int lane = blockIdx.x * kWarp + threadIdx.x;
  tile_sums[lane] = SumOfTileSums<kLoadsOfLane>(tile_sums, tiles, lane);
}

// *stats from the sums of all tiles, or from their lanes: one block.
__global__ void __launch_bounds__(kGradLanes)
    FinishKernel(const double* tile_sums, int64_t tiles, GradStats* stats) {
  __shared__ double lanes[kLanePlaces];
  const int lane = threadIdx.x;
  lanes[LanePlace(lane)] = SumOfTileSums<kLoadsOfBlock>(tile_sums, tiles, lane);
  __syncthreads();
  if (lane >= kWarp) return;  // all warps but the first
  const double sum = HalveWarp(HalveToWarp(lanes, lane));
  if (lane == 0) *stats = StatsOf(sum);
}

}  // namespace

template <typename Grad>
cudaError_t LaunchGradTileSums(const GradSegment* segments, int64_t count, double* tile_sums,
                               cudaStream_t stream) {
  return WithCapacity<kMaxGradSegments>(count, [&](auto capacity) {
    GradArguments<capacity> arguments;
    arguments.tile_sums = tile_sums;
    return ForEachBatch(segments, count, kMaxGridBlocks, GradTiles, arguments.batch, cudaSuccess,
                        [&](int64_t tiles_before) {
                          arguments.tiles_before = tiles_before;
                          const auto blocks =
                              static_cast<unsigned>(CeilDiv(arguments.batch.tiles(), kWarps));
                          return LaunchKernel<TileSumsKernel<Grad, capacity>>(blocks, kTileThreads,
                                                                              stream, arguments);
                        });
  });
}

cudaError_t LaunchGradCheckFinish(double* tile_sums, int64_t tiles, GradStats* stats,
                                  cudaStream_t stream) {
  // One block reads what it can have in flight at once.
  if (tiles > kLoadsOfBlock * kGradLanes) {
    const cudaError_t launched =
        LaunchKernel<LaneSumsKernel>(kGradLanes / kWarp, kWarp, stream, tile_sums, tiles);
    if (launched != cudaSuccess) return launched;
    tiles = kGradLanes;
  }
  return LaunchKernel<FinishKernel>(1, kGradLanes, stream, tile_sums, tiles, stats);
}

template <typename Grad>
cudaError_t LaunchGradCheck(const GradSegment* segments, int64_t count, double* workspace,
                            GradStats* stats, cudaStream_t stream) {
  const cudaError_t error = LaunchGradTileSums<Grad>(segments, count, workspace, stream);
  if (error != cudaSuccess) return error;
  int64_t tiles = 0;
  for (int64_t i = 0; i < count; ++i) tiles += CeilDiv(segments[i].size, kGradTile);
  return LaunchGradCheckFinish(workspace, tiles, stats, stream);
}

#define BRIGADE_INSTANTIATE(Grad)                                                              \
  template cudaError_t LaunchGradTileSums<Grad>(const GradSegment*, int64_t, double*,          \
                                                cudaStream_t);                                 \
  template cudaError_t LaunchGradCheck<Grad>(const GradSegment*, int64_t, double*, GradStats*, \
                                             cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
