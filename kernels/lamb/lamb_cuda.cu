// LAMB over a list on the GPU, in two passes: the first reads param, both moments and the gradient
// and writes the moments, 24 bytes an element beside the gradient; the second reads param and
// moments and writes param, 16 bytes, and the copy. A block has a tile, and a thread a lane of its
// sums: every 256th element, four of them in flight, 64 bytes; 4 blocks on an SM make 64 KiB.

#include <type_traits>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/lamb/lamb_cuda.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

// Segments of 64 bytes, with their first tiles and the groups' constants, fill a launch's
// arguments; and so do tensors of 48 bytes.
constexpr int kMaxSegments = 410;
constexpr int kMaxTensors = 560;
constexpr int kThreads = kLambLanes;
constexpr int kBlocksPerSm = 4;  // untuned
// The elements of a thread that are loaded before the first is used.
constexpr int kAtOnce = 4;
static_assert(kLambTile % (kAtOnce * kThreads) == 0 && kLambTileLanes == kWarp);

template <int kCapacity>
struct LambArguments {
  LambParameters parameters;
  // Of this launch's tiles: their sums; then the first of each segment has its trust ratio.
  LambSums* tiles;
  SegmentBatch<LambSegment, kCapacity> batch;
};
static_assert(sizeof(LambArguments<kMaxSegments>) <= kMaxLaunchArgumentBytes);

// The sum over the block's threads, each of which is a lane; in thread 0.
__device__ double SumLanes(double sum, double* lanes) {
  constexpr int kPart = kLambLanes / kWarp;
  lanes[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp) return 0.0;
  double part[kPart];
  for (int j = 0; j < kPart; ++j) part[j] = lanes[threadIdx.x + j * kWarp];
  for (int half = kPart / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) part[j] = precision::Add(part[j], part[j + half]);
  }
  return HalveWarp(part[0]);
}

// Calls visit(i, slot) for this thread's elements of a tile, kAtOnce at a time: first load(i, slot)
// of them, for slots from 0 on.
template <typename Load, typename Visit>
__device__ void ForElements(int64_t begin, int64_t size, const Load& load, const Visit& visit) {
  const int64_t end = begin + kLambTile < size ? begin + kLambTile : size;
#pragma unroll 1
  for (int64_t from = begin + threadIdx.x; from < end; from += kAtOnce * kThreads) {
#pragma unroll
    for (int slot = 0; slot < kAtOnce; ++slot) {
      const int64_t i = from + slot * kThreads;
      if (i < end) load(i, slot);
    }
#pragma unroll
    for (int slot = 0; slot < kAtOnce; ++slot) {
      const int64_t i = from + slot * kThreads;
      if (i < end) visit(i, slot);
    }
  }
}

template <typename Grad, int kCapacity>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    LambMomentsKernel(const __grid_constant__ LambArguments<kCapacity> arguments) {
  __shared__ double of_param[kLambLanes], of_update[kLambLanes];
  if (SkipsStep(arguments.parameters)) return;
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const LambSegment& s = batch.segments[index];
  // An error of the stream: the host cannot be asked, and doing nothing would pass for a step.
  if (FindStepError<LambPolicy>(arguments.parameters, s.group) != StepError::kNone) Trap();
  const LambCoefficients c = LambPolicy::MakeCoefficients(arguments.parameters, s.group);
  const Grad* const grad = static_cast<const Grad*>(s.grad);
  Grad g[kAtOnce];
  float p[kAtOnce], m[kAtOnce], v[kAtOnce];
  LambSums sums = {0.0, 0.0};
  ForElements((blockIdx.x - batch.first_tile[index]) * kLambTile, s.size,
              [&](int64_t i, int slot) {
                g[slot] = grad[i];
                p[slot] = s.param[i];
                m[slot] = s.m[i];
                v[slot] = s.v[i];
              },
              [&](int64_t i, int slot) {
                LambMoments(c, static_cast<float>(g[slot]), m[slot], v[slot]);
                s.m[i] = m[slot];
                s.v[i] = v[slot];
                sums.param = AddLambSquare(sums.param, p[slot]);
                sums.update = AddLambSquare(sums.update, LambUpdate(c, m[slot], v[slot], p[slot]));
              });
  const double param = SumLanes(sums.param, of_param);
  const double update = SumLanes(sums.update, of_update);
  if (threadIdx.x == 0) arguments.tiles[blockIdx.x] = {param, update};
}

// Of a tensor, in a warp's first thread: the sums of its tiles, tile_at(t). All threads have read
// them then: HalveWarp waits for each.
template <typename TileAt>
__device__ LambSums SumOfTiles(int64_t count, const TileAt& tile_at) {
  LambSums sums = {0.0, 0.0};
  for (int64_t t = threadIdx.x; t < count; t += kWarp) {
    const LambSums tile = tile_at(t);
    sums.param = precision::Add(sums.param, tile.param);
    sums.update = precision::Add(sums.update, tile.update);
  }
  return {HalveWarp(sums.param), HalveWarp(sums.update)};
}

// A warp a segment.
template <int kCapacity>
__global__ void __launch_bounds__(kWarp)
    LambTrustKernel(const __grid_constant__ LambArguments<kCapacity> arguments) {
  if (SkipsStep(arguments.parameters)) return;
  const auto& batch = arguments.batch;
  const LambSegment& s = batch.segments[blockIdx.x];
  LambSums* const tiles = arguments.tiles + batch.first_tile[blockIdx.x];
  const int64_t count = batch.first_tile[blockIdx.x + 1] - batch.first_tile[blockIdx.x];
  const LambSums sums = SumOfTiles(count, [&](int64_t t) { return tiles[t]; });
  if (threadIdx.x == 0) {
    tiles[0].param = LambTrust(arguments.parameters.groups[s.group], sums);
  }
}

template <int kCapacity>
struct LambTrustsArguments {
  LambParameters parameters;
  const LambSums* tiles;
  float* trusts;
  LambTensor tensors[kCapacity];
};
static_assert(sizeof(LambTrustsArguments<kMaxTensors>) <= kMaxLaunchArgumentBytes);

// A warp a tensor, whose tiles lie where their ranks have put them.
template <int kCapacity>
__global__ void __launch_bounds__(kWarp)
    LambTrustsKernel(const __grid_constant__ LambTrustsArguments<kCapacity> arguments) {
  if (SkipsStep(arguments.parameters)) return;
  const LambTensor& tensor = arguments.tensors[blockIdx.x];
  const LambSums sums =
      SumOfTiles(tensor.count, [&](int64_t t) { return arguments.tiles[LambTileAt(tensor, t)]; });
  if (threadIdx.x == 0) {
    arguments.trusts[blockIdx.x] = LambTrust(arguments.parameters.groups[tensor.group], sums);
  }
}

template <typename Copy, int kCapacity>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    LambParamKernel(const __grid_constant__ LambArguments<kCapacity> arguments) {
  if (SkipsStep(arguments.parameters)) return;
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const LambSegment& s = batch.segments[index];
  // As above: LaunchLambParams comes without the moments' kernel.
  if (FindStepError<LambPolicy>(arguments.parameters, s.group) != StepError::kNone) Trap();
  const LambCoefficients c = LambPolicy::MakeCoefficients(arguments.parameters, s.group);
  const float trust = s.trust != nullptr
                          ? *s.trust
                          : static_cast<float>(arguments.tiles[batch.first_tile[index]].param);
  const float rate = precision::Mul(c.lr, trust);
  float p[kAtOnce], m[kAtOnce], v[kAtOnce];
  ForElements((blockIdx.x - batch.first_tile[index]) * kLambTile, s.size,
              [&](int64_t i, int slot) {
                p[slot] = s.param[i];
                m[slot] = s.m[i];
                v[slot] = s.v[i];
              },
              [&](int64_t i, int slot) {
                const float param =
                    LambParam(rate, LambUpdate(c, m[slot], v[slot], p[slot]), p[slot]);
                s.param[i] = param;
                if constexpr (!std::is_same_v<Copy, NoCopy>) {
                  static_cast<Copy*>(s.param_copy)[i] = Copy(param);
                }
              });
}

// Calls launch(arguments, blocks, tensors) for each batch of segments.
template <typename Launch>
cudaError_t ForEachLaunch(const LambSegment* segments, int64_t count,
                          const LambParameters& parameters, LambSums* tiles, const Launch& launch) {
  if (!NamesStep(parameters) || !HasOwnSteps<LambPolicy>(parameters, segments, count)) {
    return cudaErrorInvalidValue;
  }
  return WithCapacity<kMaxSegments>(count, [&](auto capacity) {
    LambArguments<capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const LambSegment& s) { return CeilDiv(s.size, kLambTile); }, arguments.batch,
        cudaSuccess,
        [&](int64_t tiles_before) {
          arguments.tiles = tiles == nullptr ? nullptr : tiles + tiles_before;
          return launch(capacity, arguments, static_cast<unsigned>(arguments.batch.tiles()));
        });
  });
}

}  // namespace

template <typename Grad, typename Copy>
cudaError_t LaunchLamb(const LambSegment* segments, int64_t count, const LambParameters& parameters,
                       LambSums* tiles, cudaStream_t stream) {
  return ForEachLaunch(
      segments, count, parameters, tiles,
      [&](auto capacity, const auto& arguments, unsigned blocks) {
        const auto tensors = static_cast<unsigned>(arguments.batch.count);
        cudaError_t error =
            LaunchKernel<LambMomentsKernel<Grad, capacity>>(blocks, kThreads, stream, arguments);
        if (error != cudaSuccess) return error;
        error = LaunchKernel<LambTrustKernel<capacity>>(tensors, kWarp, stream, arguments);
        if (error != cudaSuccess) return error;
        return LaunchKernel<LambParamKernel<Copy, capacity>>(blocks, kThreads, stream, arguments);
      });
}

template <typename Grad>
cudaError_t LaunchLambMoments(const LambSegment* segments, int64_t count,
                              const LambParameters& parameters, LambSums* tiles,
                              cudaStream_t stream) {
  return ForEachLaunch(segments, count, parameters, tiles,
                       [&](auto capacity, const auto& arguments, unsigned blocks) {
                         return LaunchKernel<LambMomentsKernel<Grad, capacity>>(blocks, kThreads,
                                                                                stream, arguments);
                       });
}

cudaError_t LaunchLambTrusts(const LambTensor* tensors, int64_t count,
                             const LambParameters& parameters, const LambSums* tiles, float* trusts,
                             cudaStream_t stream) {
  if (!NamesStep(parameters)) return cudaErrorInvalidValue;
  return WithCapacity<kMaxTensors>(count, [&](auto capacity) {
    LambTrustsArguments<capacity> arguments;
    arguments.parameters = parameters;
    arguments.tiles = tiles;
    for (int64_t first = 0; first < count; first += capacity) {
      const int64_t end = first + capacity < count ? first + capacity : count;
      for (int64_t i = first; i < end; ++i) arguments.tensors[i - first] = tensors[i];
      arguments.trusts = trusts + first;
      const cudaError_t error = LaunchKernel<LambTrustsKernel<capacity>>(
          static_cast<unsigned>(end - first), kWarp, stream, arguments);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

template <typename Copy>
cudaError_t LaunchLambParams(const LambSegment* segments, int64_t count,
                             const LambParameters& parameters, cudaStream_t stream) {
  return ForEachLaunch(segments, count, parameters, nullptr,
                       [&](auto capacity, const auto& arguments, unsigned blocks) {
                         return LaunchKernel<LambParamKernel<Copy, capacity>>(blocks, kThreads,
                                                                              stream, arguments);
                       });
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                           \
  template cudaError_t LaunchLamb<Grad, Copy>(const LambSegment*, int64_t, const LambParameters&, \
                                              LambSums*, cudaStream_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE
#define BRIGADE_INSTANTIATE(T)                                                                  \
  template cudaError_t LaunchLambMoments<T>(const LambSegment*, int64_t, const LambParameters&, \
                                            LambSums*, cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE
#define BRIGADE_INSTANTIATE(T)                                                                 \
  template cudaError_t LaunchLambParams<T>(const LambSegment*, int64_t, const LambParameters&, \
                                           cudaStream_t);
BRIGADE_INSTANTIATE(NoCopy)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
