// The passes of 1-bit LAMB over lists on the GPU. A block has a tile of kLambTile elements, and a
// thread a lane of its sums: every 256th element. Tensors have a warp each.

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cuda.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {
namespace {

// Segments of 64 bytes, and tensors of 48 with their sizes, beside the groups' constants, within a
// launch's arguments.
constexpr int kMaxSegments = 400;
constexpr int kMaxTensors = 500;
constexpr int kThreads = kLambLanes;

template <typename Segment, int kCapacity>
struct SegmentArguments {
  LambParameters parameters;
  const OneBitLambNumbers* numbers;
  OneBitLambSums* sums;
  SegmentBatch<Segment, kCapacity> batch;
};
static_assert(sizeof(SegmentArguments<OneBitLambSegment, kMaxSegments>) <= kMaxLaunchArgumentBytes);

template <typename Sums, int kCapacity>
struct TensorArguments {
  LambParameters parameters;
  OneBitLambConstants constants;
  const Sums* sums;
  double* total;
  // Of the first tensor of this launch.
  OneBitLambNumbers* numbers;
  float* trusts;
  int64_t first;
  int64_t all;
  int32_t count;
  LambTensor tensors[kCapacity];
  int64_t sizes[kCapacity];
};
static_assert(sizeof(TensorArguments<LambSums, kMaxTensors>) <= kMaxLaunchArgumentBytes);

// Over the block's threads, each of which is a lane: lane l takes lane l + n/2, of n lanes, until
// there is one; for all threads.
template <typename Take>
__device__ double HalveBlock(double value, double* lanes, const Take& take) {
  __syncthreads();
  lanes[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      lanes[threadIdx.x] = take(lanes[threadIdx.x], lanes[threadIdx.x + half]);
  }
  __syncthreads();
  return lanes[0];
}

struct AddLanes {
  __device__ double operator()(double a, double b) const { return precision::Add(a, b); }
};

// Calls visit(i) for this thread's elements of a tile.
template <typename Visit>
__device__ void ForElements(int64_t tile, int64_t size, const Visit& visit) {
  const int64_t begin = tile * kLambTile;
  const int64_t end = begin + kLambTile < size ? begin + kLambTile : size;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) visit(i);
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    FreezeKernel(const __grid_constant__ SegmentArguments<OneBitLambSegment, kCapacity> arguments) {
  __shared__ double lanes[kLambLanes];
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const OneBitLambSegment& s = batch.segments[index];
  if (arguments.numbers[s.tensor].scale != 0.0f) return;
  const int64_t tile = blockIdx.x - batch.first_tile[index];
  double sum = 0.0;
  ForElements(tile, s.size, [&](int64_t i) {
    s.fresh[i] = s.v[i];
    sum = AddLambSquare(sum, s.m[i]);
  });
  sum = HalveBlock(sum, lanes, AddLanes());
  if (threadIdx.x == 0) arguments.sums[s.first_tile + tile] = {0.0, sum, 0.0};
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads) MomentsKernel(
    const __grid_constant__ SegmentArguments<OneBitLambSegment, kCapacity> arguments) {
  __shared__ double lanes[kLambLanes];
  if (SkipsStep(arguments.parameters)) return;
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const OneBitLambSegment& s = batch.segments[index];
  if (FindErrorOfAnyStep<LambPolicy>(arguments.parameters, s.group) != StepError::kNone) Trap();
  const LambCoefficients c = LambPolicy::MakeCoefficients(arguments.parameters, s.group);
  const int64_t tile = blockIdx.x - batch.first_tile[index];
  OneBitLambSums sums = {0.0, 0.0, 0.0};
  ForElements(tile, s.size, [&](int64_t i) {
    const float m = s.mean[i];
    float fresh = s.fresh[i];
    const OneBitLambElement e = OneBitLambMoment(c, m, s.m[i], s.v[i], s.param[i], fresh);
    s.m[i] = m;
    s.fresh[i] = fresh;
    sums.direction = AddLambSquare(sums.direction, e.direction);
    sums.update = AddLambSquare(sums.update, e.update);
    sums.quotient = OneBitLambGreater(sums.quotient, e.quotient);
  });
  sums.direction = HalveBlock(sums.direction, lanes, AddLanes());
  sums.update = HalveBlock(sums.update, lanes, AddLanes());
  sums.quotient =
      HalveBlock(sums.quotient, lanes, [](double a, double b) { return OneBitLambGreater(a, b); });
  if (threadIdx.x == 0) arguments.sums[s.first_tile + tile] = sums;
}

template <typename Grad, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    SendKernel(const __grid_constant__ SegmentArguments<OneBitLambMessage, kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const OneBitLambMessage& s = batch.segments[index];
  if (FindErrorOfAnyStep<LambPolicy>(arguments.parameters, s.group) != StepError::kNone) Trap();
  const LambCoefficients c = LambPolicy::MakeCoefficients(arguments.parameters, s.group);
  const float scale = arguments.numbers[s.tensor].scale;
  const Grad* const grad = static_cast<const Grad*>(s.grad);
  ForElements(blockIdx.x - batch.first_tile[index], s.size, [&](int64_t i) {
    s.message[i] = OneBitLambSent(c, static_cast<float>(grad[i]), s.m[i], scale);
  });
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads) ReceiveKernel(
    const __grid_constant__ SegmentArguments<OneBitLambMessage, kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const OneBitLambMessage& s = batch.segments[index];
  const float scale = arguments.numbers[s.tensor].scale;
  ForElements(blockIdx.x - batch.first_tile[index], s.size,
              [&](int64_t i) { s.message[i] = precision::Div(s.message[i], scale); });
}

// Of a tensor, in a warp's first thread: the sum over its tiles of what value(tile) gives.
template <typename Value>
__device__ double SumOfTiles(const LambTensor& tensor, const Value& value) {
  double sum = 0.0;
  for (int64_t t = threadIdx.x; t < tensor.count; t += kWarp) {
    sum = precision::Add(sum, value(LambTileAt(tensor, t)));
  }
  return HalveWarp(sum);
}

template <int kCapacity>
__global__ void __launch_bounds__(kWarp)
    RatiosKernel(const __grid_constant__ TensorArguments<LambSums, kCapacity> arguments) {
  if (SkipsStep(arguments.parameters)) return;
  const LambTensor& tensor = arguments.tensors[blockIdx.x];
  const LambSums* const tiles = arguments.sums;
  const LambSums sums = {SumOfTiles(tensor, [&](int64_t t) { return tiles[t].param; }),
                         SumOfTiles(tensor, [&](int64_t t) { return tiles[t].update; })};
  if (threadIdx.x != 0) return;
  float& ratio = arguments.numbers[blockIdx.x].ratio;
  ratio = OneBitLambRatio(arguments.constants, ratio,
                          LambTrust(arguments.parameters.groups[tensor.group], sums));
}

// Of a tensor, in a warp's first thread.
template <typename Arguments>
__device__ double RootMeanSquare(const Arguments& arguments, int tensor) {
  const double sum =
      SumOfTiles(arguments.tensors[tensor], [&](int64_t t) { return arguments.sums[t].update; });
  const int64_t size = arguments.sizes[tensor];
  if (size == 0) return 0.0;
  return precision::Sqrt(precision::Div(sum, static_cast<double>(size)));
}

// One warp, since tensors are added one after another.
template <int kCapacity>
__global__ void __launch_bounds__(kWarp)
    TotalKernel(const __grid_constant__ TensorArguments<OneBitLambSums, kCapacity> arguments) {
  // Of the first thread, which alone has sums.
  double total = arguments.first == 0 || threadIdx.x != 0 ? 0.0 : *arguments.total;
  for (int t = 0; t < arguments.count; ++t) {
    total = precision::Add(total, RootMeanSquare(arguments, t));
  }
  if (threadIdx.x == 0) *arguments.total = total;
}

template <int kCapacity>
__global__ void __launch_bounds__(kWarp)
    ScalesKernel(const __grid_constant__ TensorArguments<OneBitLambSums, kCapacity> arguments) {
  OneBitLambNumbers& numbers = arguments.numbers[blockIdx.x];
  const bool has_scale = numbers.scale != 0.0f;
  __syncthreads();  // before the first thread writes it
  if (has_scale) return;
  const double rms = RootMeanSquare(arguments, static_cast<int>(blockIdx.x));
  if (threadIdx.x != 0) return;
  numbers.scale = OneBitLambScale(*arguments.total, arguments.all, rms);
  numbers.factor = 1.0f;
}

template <int kCapacity>
__global__ void __launch_bounds__(kWarp)
    TrustsKernel(const __grid_constant__ TensorArguments<OneBitLambSums, kCapacity> arguments) {
  if (SkipsStep(arguments.parameters)) return;
  const LambTensor& tensor = arguments.tensors[blockIdx.x];
  const OneBitLambSums* const tiles = arguments.sums;
  OneBitLambSums sums = {SumOfTiles(tensor, [&](int64_t t) { return tiles[t].direction; }),
                         SumOfTiles(tensor, [&](int64_t t) { return tiles[t].update; }), 0.0};
  // A few for each thread would be enough, but a tensor has one for 8192 elements.
  if (threadIdx.x != 0) return;
  for (int64_t t = 0; t < tensor.count; ++t) {
    sums.quotient = OneBitLambGreater(sums.quotient, tiles[LambTileAt(tensor, t)].quotient);
  }
  OneBitLambNumbers& numbers = arguments.numbers[blockIdx.x];
  numbers.factor =
      OneBitLambFactor(arguments.constants, arguments.parameters.groups[tensor.group].weight_decay,
                       sums, numbers.factor);
  arguments.trusts[blockIdx.x] = precision::Mul(numbers.ratio, numbers.factor);
}

template <typename Segment, typename Launch>
cudaError_t ForEachLaunch(const Segment* segments, int64_t count, const LambParameters& parameters,
                          const OneBitLambNumbers* numbers, OneBitLambSums* sums,
                          const Launch& launch) {
  return WithCapacity<kMaxSegments>(count, [&](auto capacity) {
    SegmentArguments<Segment, capacity> arguments;
    arguments.parameters = parameters;
    arguments.numbers = numbers;
    arguments.sums = sums;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const Segment& s) { return CeilDiv(s.size, kLambTile); }, arguments.batch, cudaSuccess,
        [&](int64_t) {
          return launch(capacity, arguments, static_cast<unsigned>(arguments.batch.tiles()));
        });
  });
}

template <typename Sums, typename Launch>
cudaError_t ForEachTensors(const LambTensor* tensors, const int64_t* sizes, int64_t count,
                           const LambParameters& parameters, const OneBitLambConstants& constants,
                           const Sums* sums, double* total, OneBitLambNumbers* numbers,
                           float* trusts, const Launch& launch) {
  return WithCapacity<kMaxTensors>(count, [&](auto capacity) {
    TensorArguments<Sums, capacity> arguments;
    arguments.parameters = parameters;
    arguments.constants = constants;
    arguments.sums = sums;
    arguments.total = total;
    arguments.all = count;
    for (int64_t first = 0; first < count; first += capacity) {
      const int64_t end = first + capacity < count ? first + capacity : count;
      for (int64_t i = first; i < end; ++i) {
        arguments.tensors[i - first] = tensors[i];
        arguments.sizes[i - first] = sizes == nullptr ? 0 : sizes[i];
      }
      arguments.first = first;
      arguments.count = static_cast<int32_t>(end - first);
      arguments.numbers = numbers + first;
      arguments.trusts = trusts == nullptr ? nullptr : trusts + first;
      const cudaError_t error = launch(capacity, arguments);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t LaunchOneBitLambRatios(const LambTensor* tensors, int64_t count,
                                   const LambParameters& parameters,
                                   const OneBitLambConstants& constants, const LambSums* sums,
                                   OneBitLambNumbers* numbers, cudaStream_t stream) {
  if (!NamesStep(parameters)) return cudaErrorInvalidValue;
  return ForEachTensors(tensors, nullptr, count, parameters, constants, sums, nullptr, numbers,
                        nullptr, [&](auto capacity, const auto& arguments) {
                          return LaunchKernel<RatiosKernel<capacity>>(
                              static_cast<unsigned>(arguments.count), kWarp, stream, arguments);
                        });
}

cudaError_t LaunchOneBitLambFreeze(const OneBitLambSegment* segments, int64_t count,
                                   const OneBitLambNumbers* numbers, OneBitLambSums* sums,
                                   cudaStream_t stream) {
  return ForEachLaunch(segments, count, {}, numbers, sums,
                       [&](auto capacity, const auto& arguments, unsigned blocks) {
                         return LaunchKernel<FreezeKernel<capacity>>(blocks, kThreads, stream,
                                                                     arguments);
                       });
}

cudaError_t LaunchOneBitLambScales(const LambTensor* tensors, const int64_t* sizes, int64_t count,
                                   const OneBitLambSums* sums, double* total,
                                   OneBitLambNumbers* numbers, cudaStream_t stream) {
  const cudaError_t error =
      ForEachTensors(tensors, sizes, count, {}, {}, sums, total, numbers, nullptr,
                     [&](auto capacity, const auto& arguments) {
                       return LaunchKernel<TotalKernel<capacity>>(1u, kWarp, stream, arguments);
                     });
  if (error != cudaSuccess) return error;
  return ForEachTensors(tensors, sizes, count, {}, {}, sums, total, numbers, nullptr,
                        [&](auto capacity, const auto& arguments) {
                          return LaunchKernel<ScalesKernel<capacity>>(
                              static_cast<unsigned>(arguments.count), kWarp, stream, arguments);
                        });
}

template <typename Grad>
cudaError_t LaunchOneBitLambSend(const OneBitLambMessage* messages, int64_t count,
                                 const LambParameters& parameters, const OneBitLambNumbers* numbers,
                                 cudaStream_t stream) {
  if (!NamesStep(parameters) || !HasOwnSteps<LambPolicy>(parameters, messages, count)) {
    return cudaErrorInvalidValue;
  }
  return ForEachLaunch(messages, count, parameters, numbers, nullptr,
                       [&](auto capacity, const auto& arguments, unsigned blocks) {
                         return LaunchKernel<SendKernel<Grad, capacity>>(blocks, kThreads, stream,
                                                                         arguments);
                       });
}

cudaError_t LaunchOneBitLambReceive(const OneBitLambMessage* messages, int64_t count,
                                    const OneBitLambNumbers* numbers, cudaStream_t stream) {
  return ForEachLaunch(messages, count, {}, numbers, nullptr,
                       [&](auto capacity, const auto& arguments, unsigned blocks) {
                         return LaunchKernel<ReceiveKernel<capacity>>(blocks, kThreads, stream,
                                                                      arguments);
                       });
}

cudaError_t LaunchOneBitLambMoments(const OneBitLambSegment* segments, int64_t count,
                                    const LambParameters& parameters, OneBitLambSums* sums,
                                    cudaStream_t stream) {
  if (!NamesStep(parameters) || !HasOwnSteps<LambPolicy>(parameters, segments, count)) {
    return cudaErrorInvalidValue;
  }
  return ForEachLaunch(segments, count, parameters, nullptr, sums,
                       [&](auto capacity, const auto& arguments, unsigned blocks) {
                         return LaunchKernel<MomentsKernel<capacity>>(blocks, kThreads, stream,
                                                                      arguments);
                       });
}

cudaError_t LaunchOneBitLambTrusts(const LambTensor* tensors, int64_t count,
                                   const LambParameters& parameters,
                                   const OneBitLambConstants& constants, const OneBitLambSums* sums,
                                   OneBitLambNumbers* numbers, float* trusts, cudaStream_t stream) {
  if (!NamesStep(parameters)) return cudaErrorInvalidValue;
  return ForEachTensors(tensors, nullptr, count, parameters, constants, sums, nullptr, numbers,
                        trusts, [&](auto capacity, const auto& arguments) {
                          return LaunchKernel<TrustsKernel<capacity>>(
                              static_cast<unsigned>(arguments.count), kWarp, stream, arguments);
                        });
}

#define BRIGADE_INSTANTIATE(T)                                                                  \
  template cudaError_t LaunchOneBitLambSend<T>(const OneBitLambMessage*, int64_t,               \
                                               const LambParameters&, const OneBitLambNumbers*, \
                                               cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
