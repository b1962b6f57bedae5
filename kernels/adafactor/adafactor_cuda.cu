// Adafactor on the GPU. A block has a tile of 64 rows by 256 columns, a warp eight of its rows, and
// a thread every 32nd column of these: it adds up its columns in registers as it goes down, eight
// loads at a time in flight. Sums of a matrix read the gradient and the parameter, 8 bytes an
// element, updates' sums the gradient once more; parameters another 12 bytes and the copy, a block
// 8192 elements.

#include <type_traits>

#include "brigade/kernels/adafactor/adafactor_cuda.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::kernels {
namespace {

// Untuned, all of them. What a launch's arguments hold, of 72 and of 88 bytes.
constexpr int kMaxTensors = 380;
constexpr int kMaxSegments = 320;
constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 4;
constexpr int64_t kParamTile = 8192;
constexpr int kWarps = kThreads / kWarp;
// Of a tile, that a thread has.
constexpr int kOwnColumns = kAdafactorColumns / kWarp;
static_assert(kAdafactorLanes == kWarp && kAdafactorGroupsOfRows == kWarps);
static_assert(kAdafactorTensorLanes == kThreads && kAdafactorColumns == kThreads);

template <int kCapacity>
struct FactorArguments {
  AdafactorParameters parameters;
  SegmentBatch<AdafactorTensor, kCapacity> batch;
};
template <int kCapacity>
struct ParamArguments {
  AdafactorParameters parameters;
  SegmentBatch<AdafactorSegment, kCapacity> batch;
};
static_assert(sizeof(FactorArguments<kMaxTensors>) <= kMaxLaunchArgumentBytes);
static_assert(sizeof(ParamArguments<kMaxSegments>) <= kMaxLaunchArgumentBytes);

// The tensor of this block, and which of its blocks this is.
struct Place {
  const AdafactorTensor& tensor;
  AdafactorGrid grid;
  int64_t block;
};
template <typename Arguments>
__device__ Place PlaceOf(const Arguments& arguments) {
  const auto& batch = arguments.batch;
  const int index = batch.Find(blockIdx.x);
  const AdafactorTensor& t = batch.segments[index];
  return {t, AdafactorGridOf(t.rows, t.columns),
          static_cast<int64_t>(blockIdx.x) - batch.first_tile[index]};
}

// Adds up what the block's warps have, in ascending order; in thread 0.
__device__ double SumOfWarps(double of_warp, int warps, double* shared) {
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  double sum = shared[0];
  for (int w = 1; w < warps; ++w) sum = precision::Add(sum, shared[w]);
  return sum;
}

// The halved lanes of a block; in thread 0.
__device__ double SumOfLanes(double lane, double* shared) {
  __syncthreads();
  shared[threadIdx.x] = lane;
  for (int half = kThreads / 2; half >= kWarp; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      shared[threadIdx.x] = precision::Add(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
  }
  // The first warp has written all that it reads.
  return threadIdx.x < kWarp ? HalveWarp(shared[threadIdx.x]) : 0.0;
}

// The rows of a tile that this warp has: visit(row, the thread's first element in it, how many of
// its kOwnColumns elements, which are kWarp apart, there are), for all threads of the warp. Returns
// how many warps have any.
template <typename Visit>
__device__ int ForRows(const AdafactorGrid& g, int64_t tile, const Visit& visit) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t first = tile / g.across * kAdafactorRows;
  const int64_t column = tile % g.across * kAdafactorColumns + lane;
  for (int r = 0; r < kAdafactorGroupRows; ++r) {
    const int64_t row = first + warp * kAdafactorGroupRows + r;
    if (row >= g.height) break;
    const int64_t at = row * g.width + column;
    // Of a row, and of the last one of a tensor that is no matrix.
    const int64_t in_row = g.width - column, left = g.size - at;
    const int64_t has = in_row < left ? in_row : left;
    const int64_t count = has <= 0 ? 0 : (has + kWarp - 1) / kWarp;
    visit(row, at, count < kOwnColumns ? static_cast<int>(count) : kOwnColumns);
  }
  const int64_t rows = g.height - first;
  const int64_t warps = (rows + kAdafactorGroupRows - 1) / kAdafactorGroupRows;
  return warps < kWarps ? static_cast<int>(warps) : kWarps;
}

template <typename Grad, int kCapacity>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    SumKernel(const __grid_constant__ FactorArguments<kCapacity> arguments) {
  __shared__ double shared[kWarps];
  __shared__ double of_columns[kWarps][kAdafactorColumns];
  if (SkipsStep(arguments.parameters)) return;
  const Place place = PlaceOf(arguments);
  const AdafactorTensor& t = place.tensor;
  const AdafactorGrid& g = place.grid;
  // An error of the stream: the host cannot be asked, and doing nothing would pass for a step.
  if (FindStepError<AdafactorPolicy>(arguments.parameters, t.group) != StepError::kNone) Trap();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Grad* const grad = static_cast<const Grad*>(t.grad);
  double params = 0.0;
  if (!g.is_matrix) {
    const AdafactorCoefficients c = MakeAdafactorCoefficients(arguments.parameters, t.group);
    float* const scales = t.scales + kAdafactorNumbers;
    double updates = 0.0;
    const int warps = ForRows(g, place.block, [&](int64_t, int64_t at, int count) {
      for (int j = 0; j < count; ++j) {
        const int64_t i = at + j * kWarp;
        const float scaled = precision::Mul(static_cast<float>(grad[i]), c.multiplier);
        const float v = AdafactorSecondMoment(c, t.factors[i], scaled);
        const float scale = AdafactorElementScale(v);
        t.factors[i] = v;
        scales[i] = scale;
        updates = AddAdafactorSquare(updates, precision::Mul(scaled, scale));
        if (t.param != nullptr) params = AddAdafactorSquare(params, t.param[i]);
      }
    });
    params = SumOfWarps(HalveWarp(params), warps, shared);
    updates = SumOfWarps(HalveWarp(updates), warps, shared);
    if (threadIdx.x == 0) {
      t.workspace[place.block] = params;
      t.workspace[g.of_updates + place.block] = updates;
    }
    return;
  }
  const float multiplier = MultiplierOf(arguments.parameters);
  double columns[kOwnColumns] = {};
  const int64_t tile_across = place.block % g.across;
  const int warps = ForRows(g, place.block, [&](int64_t row, int64_t at, int count) {
    float own[kOwnColumns], of_param[kOwnColumns];
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      own[j] = j < count ? static_cast<float>(grad[at + j * kWarp]) : 0.0f;
      of_param[j] = j < count && t.param != nullptr ? t.param[at + j * kWarp] : 0.0f;
    }
    double of_row = 0.0;
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      if (j >= count) continue;
      const float scaled = precision::Mul(own[j], multiplier);
      of_row = AddAdafactorSquare(of_row, scaled);
      columns[j] = AddAdafactorSquare(columns[j], scaled);
      params = AddAdafactorSquare(params, of_param[j]);
    }
    of_row = HalveWarp(of_row);
    if (lane == 0) t.workspace[g.of_rows + row * g.across + tile_across] = of_row;
  });
#pragma unroll
  for (int j = 0; j < kOwnColumns; ++j) of_columns[warp][lane + j * kWarp] = columns[j];
  // Waits for all of them.
  params = SumOfWarps(HalveWarp(params), warps, shared);
  if (threadIdx.x == 0) t.workspace[place.block] = params;
  const int64_t column = tile_across * kAdafactorColumns + threadIdx.x;
  if (column >= t.columns) return;
  double sum = of_columns[0][threadIdx.x];
  for (int w = 1; w < warps; ++w) sum = precision::Add(sum, of_columns[w][threadIdx.x]);
  t.workspace[g.of_columns + place.block / g.across * t.columns + column] = sum;
}

// A thread a row or a column of a matrix.
template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    FactorKernel(const __grid_constant__ FactorArguments<kCapacity> arguments) {
  if (SkipsStep(arguments.parameters)) return;
  const Place place = PlaceOf(arguments);
  const AdafactorTensor& t = place.tensor;
  const AdafactorGrid& g = place.grid;
  const int64_t i = place.block * kThreads + threadIdx.x;
  if (i >= t.rows + t.columns) return;
  const bool is_row = i < t.rows;
  const double* const from = t.workspace + (is_row ? g.of_rows + i * g.across
                                                   : g.of_columns + i - t.rows);
  const int64_t count = is_row ? g.across : g.down;
  const int64_t stride = is_row ? 1 : t.columns;
  double sum = from[0];
  for (int64_t k = 1; k < count; ++k) sum = precision::Add(sum, from[k * stride]);
  const AdafactorCoefficients c = MakeAdafactorCoefficients(arguments.parameters, t.group);
  const float mean = AdafactorMean(c, arguments.parameters.eps1, t.factors[i], sum,
                                   is_row ? t.columns : t.rows);
  t.factors[i] = mean;
  if (!is_row) t.scales[kAdafactorNumbers + i] = AdafactorScale(mean);
}

// A block a matrix.
template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    MeanKernel(const __grid_constant__ FactorArguments<kCapacity> arguments) {
  __shared__ double shared[kThreads];
  __shared__ double mean;
  if (SkipsStep(arguments.parameters)) return;
  const AdafactorTensor& t = PlaceOf(arguments).tensor;
  double lane = 0.0;
  for (int64_t i = threadIdx.x; i < t.rows; i += kThreads) {
    lane = precision::Add(lane, static_cast<double>(t.factors[i]));
  }
  const double sum = SumOfLanes(lane, shared);
  if (threadIdx.x == 0) mean = precision::Div(sum, static_cast<double>(t.rows));
  __syncthreads();
  float* const scales = t.scales + kAdafactorNumbers;
  for (int64_t i = threadIdx.x; i < t.rows; i += kThreads) {
    scales[i] = AdafactorRowScale(t.factors[i], mean);
  }
}

template <typename Grad, int kCapacity>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    UpdateKernel(const __grid_constant__ FactorArguments<kCapacity> arguments) {
  __shared__ double shared[kWarps];
  if (SkipsStep(arguments.parameters)) return;
  const Place place = PlaceOf(arguments);
  const AdafactorTensor& t = place.tensor;
  const AdafactorGrid& g = place.grid;
  const float multiplier = MultiplierOf(arguments.parameters);
  const Grad* const grad = static_cast<const Grad*>(t.grad);
  const float* const rows = t.scales + kAdafactorNumbers;
  const float* const columns = rows + t.rows + place.block % g.across * kAdafactorColumns +
                               static_cast<int>(threadIdx.x) % kWarp;
  float of_columns[kOwnColumns] = {};
  const int64_t has = g.width - place.block % g.across * kAdafactorColumns -
                      static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int j = 0; j < kOwnColumns; ++j) {
    if (j * kWarp < has) of_columns[j] = columns[j * kWarp];
  }
  double updates = 0.0;
  const int warps = ForRows(g, place.block, [&](int64_t row, int64_t at, int count) {
    float own[kOwnColumns];
    const float of_row = rows[row];
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      own[j] = j < count ? static_cast<float>(grad[at + j * kWarp]) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      if (j >= count) continue;
      const float scaled = precision::Mul(own[j], multiplier);
      updates = AddAdafactorSquare(updates, AdafactorUpdate(scaled, of_row, of_columns[j]));
    }
  });
  updates = SumOfWarps(HalveWarp(updates), warps, shared);
  if (threadIdx.x == 0) t.workspace[g.of_updates + place.block] = updates;
}

// A block a tensor.
template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    NumberKernel(const __grid_constant__ FactorArguments<kCapacity> arguments) {
  __shared__ double shared[kThreads];
  if (SkipsStep(arguments.parameters)) return;
  const Place place = PlaceOf(arguments);
  const AdafactorTensor& t = place.tensor;
  const AdafactorGrid& g = place.grid;
  double params = 0.0, updates = 0.0;
  for (int64_t i = threadIdx.x; i < g.tiles(); i += kThreads) {
    params = precision::Add(params, t.workspace[i]);
    updates = precision::Add(updates, t.workspace[g.of_updates + i]);
  }
  params = SumOfLanes(params, shared);
  updates = SumOfLanes(updates, shared);
  if (threadIdx.x != 0) return;
  const AdafactorCoefficients c = MakeAdafactorCoefficients(arguments.parameters, t.group);
  const float rate = AdafactorRate(c, arguments.parameters, params, g.size);
  t.scales[0] = rate;
  t.scales[1] = AdafactorUpdateScale(arguments.parameters, rate, updates, g.size);
  t.scales[2] = 0.0f;
  t.scales[3] = 0.0f;
}

template <typename Grad, typename Copy, int kCapacity>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    ParamsKernel(const __grid_constant__ ParamArguments<kCapacity> arguments) {
  // Elements of a thread that are loaded before the first is used.
  constexpr int kAtOnce = 4;
  if (SkipsStep(arguments.parameters)) return;
  const auto& batch = arguments.batch;
  const int index = batch.Find(blockIdx.x);
  const AdafactorSegment& s = batch.segments[index];
  if (FindStepError<AdafactorPolicy>(arguments.parameters, s.group) != StepError::kNone) Trap();
  const AdafactorParamCoefficients c =
      MakeAdafactorParamCoefficients(arguments.parameters, s.scales, s.group);
  const Grad* const grad = static_cast<const Grad*>(s.grad);
  const float* const scales = s.scales + kAdafactorNumbers;
  const bool has_rows = IsAdafactorMatrix(s.rows, s.columns);
  const int64_t begin = (blockIdx.x - batch.first_tile[index]) * kParamTile + threadIdx.x;
  const int64_t end = begin - threadIdx.x + kParamTile < s.size ? begin - threadIdx.x + kParamTile
                                                               : s.size;
  // Of the element to come; a division where it has left its row.
  int64_t row = has_rows ? (s.first + begin) / s.columns : 0;
  int64_t column = has_rows ? (s.first + begin) % s.columns : s.first + begin;
  for (int64_t from = begin; from < end; from += kAtOnce * kThreads) {
    float g[kAtOnce], p[kAtOnce], m[kAtOnce], by_row[kAtOnce], by_column[kAtOnce];
#pragma unroll
    for (int slot = 0; slot < kAtOnce; ++slot) {
      const int64_t i = from + slot * kThreads;
      if (i >= end) continue;
      g[slot] = static_cast<float>(grad[i]);
      p[slot] = s.param[i];
      m[slot] = s.m != nullptr ? s.m[i] : 0.0f;
      by_row[slot] = has_rows ? scales[row] : 1.0f;
      by_column[slot] = scales[(has_rows ? s.rows : 0) + column];
      column += kThreads;
      if (has_rows && column >= s.columns) {
        row += column / s.columns;
        column %= s.columns;
      }
    }
#pragma unroll
    for (int slot = 0; slot < kAtOnce; ++slot) {
      const int64_t i = from + slot * kThreads;
      if (i >= end) continue;
      const float update =
          AdafactorUpdate(precision::Mul(g[slot], c.multiplier), by_row[slot], by_column[slot]);
      AdafactorParam(c, update, p[slot], s.m != nullptr ? &m[slot] : nullptr);
      if (s.m != nullptr) s.m[i] = m[slot];
      s.param[i] = p[slot];
      if constexpr (!std::is_same_v<Copy, NoCopy>) {
        static_cast<Copy*>(s.param_copy)[i] = Copy(p[slot]);
      }
    }
  }
}

int64_t TilesOf(const AdafactorTensor& t) {
  return t.rows == 0 || t.columns == 0 ? 0 : AdafactorGridOf(t.rows, t.columns).tiles();
}
bool IsMatrix(const AdafactorTensor& t) { return IsAdafactorMatrix(t.rows, t.columns); }

// Calls launch(arguments, blocks) with batches of the tensors, which have so many blocks each.
template <int kCapacity, typename BlocksOf, typename Launch>
cudaError_t ForBatches(const AdafactorTensor* tensors, int64_t count,
                       FactorArguments<kCapacity>& arguments, const BlocksOf& blocks_of,
                       const Launch& launch) {
  return ForEachBatch(tensors, count, kMaxGridBlocks, blocks_of, arguments.batch, cudaSuccess,
                      [&](int64_t) {
                        return launch(static_cast<unsigned>(arguments.batch.tiles()));
                      });
}

}  // namespace

template <typename Grad>
cudaError_t LaunchAdafactorFactors(const AdafactorTensor* tensors, int64_t count,
                                   const AdafactorParameters& parameters, cudaStream_t stream) {
  if (!NamesStep(parameters) || !HasOwnSteps<AdafactorPolicy>(parameters, tensors, count)) {
    return cudaErrorInvalidValue;
  }
  return WithCapacity<kMaxTensors>(count, [&](auto capacity) {
    FactorArguments<capacity> arguments;
    arguments.parameters = parameters;
    const auto run = [&](const auto& blocks_of, const auto& launch) {
      return ForBatches(tensors, count, arguments, blocks_of, launch);
    };
    cudaError_t error = run(TilesOf, [&](unsigned blocks) {
      return LaunchKernel<SumKernel<Grad, capacity>>(blocks, kThreads, stream, arguments);
    });
    if (error != cudaSuccess) return error;
    error = run(
        [](const AdafactorTensor& t) {
          return IsMatrix(t) ? CeilDiv(t.rows + t.columns, kThreads) : int64_t{0};
        },
        [&](unsigned blocks) {
          return LaunchKernel<FactorKernel<capacity>>(blocks, kThreads, stream, arguments);
        });
    if (error != cudaSuccess) return error;
    error = run([](const AdafactorTensor& t) { return int64_t{IsMatrix(t) ? 1 : 0}; },
                [&](unsigned blocks) {
                  return LaunchKernel<MeanKernel<capacity>>(blocks, kThreads, stream, arguments);
                });
    if (error != cudaSuccess) return error;
    error = run([](const AdafactorTensor& t) { return IsMatrix(t) ? TilesOf(t) : int64_t{0}; },
                [&](unsigned blocks) {
                  return LaunchKernel<UpdateKernel<Grad, capacity>>(blocks, kThreads, stream,
                                                                    arguments);
                });
    if (error != cudaSuccess) return error;
    return run([](const AdafactorTensor& t) { return int64_t{TilesOf(t) > 0 ? 1 : 0}; },
               [&](unsigned blocks) {
                 return LaunchKernel<NumberKernel<capacity>>(blocks, kThreads, stream, arguments);
               });
  });
}

template <typename Grad, typename Copy>
cudaError_t LaunchAdafactorParams(const AdafactorSegment* segments, int64_t count,
                                  const AdafactorParameters& parameters, cudaStream_t stream) {
  if (!NamesStep(parameters) || !HasOwnSteps<AdafactorPolicy>(parameters, segments, count)) {
    return cudaErrorInvalidValue;
  }
  return WithCapacity<kMaxSegments>(count, [&](auto capacity) {
    ParamArguments<capacity> arguments;
    arguments.parameters = parameters;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const AdafactorSegment& s) { return CeilDiv(s.size, kParamTile); }, arguments.batch,
        cudaSuccess, [&](int64_t) {
          return LaunchKernel<ParamsKernel<Grad, Copy, capacity>>(
              static_cast<unsigned>(arguments.batch.tiles()), kThreads, stream, arguments);
        });
  });
}

#define BRIGADE_INSTANTIATE(T)                                                  \
  template cudaError_t LaunchAdafactorFactors<T>(const AdafactorTensor*, int64_t, \
                                                 const AdafactorParameters&, cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE
#define BRIGADE_INSTANTIATE(Grad, Copy)                    \
  template cudaError_t LaunchAdafactorParams<Grad, Copy>(  \
      const AdafactorSegment*, int64_t, const AdafactorParameters&, cudaStream_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
