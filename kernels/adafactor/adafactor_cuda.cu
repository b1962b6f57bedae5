// Adafactor on the GPU. A block has a tile of 64 rows by 256 columns, and a thread a column of it,
// eight rows of which are in flight; squares of these rows go through shared memory to a warp each,
// which adds them up. Sums of a matrix read the gradient and the parameter, 8 bytes an element,
// updates' sums the gradient once more; parameters another 12 bytes and the copy, a block 8192
// elements.

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
// Rows of a tile that are loaded before the first is used: one for each warp to add up.
constexpr int kAtOnce = kWarps;
static_assert(kAdafactorRows % kAtOnce == 0);
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

// The rows of a tile, kAtOnce at a time: load(row, slot, element) for those in which this thread's
// column has an element, then visit(row, slot, element), and end(first row of these) for all
// threads.
template <typename Load, typename Visit, typename End>
__device__ void ForRows(const AdafactorGrid& g, int64_t tile, const Load& load, const Visit& visit,
                        const End& end) {
  const int64_t first = tile / g.across * kAdafactorRows;
  const int64_t column = tile % g.across * kAdafactorColumns + threadIdx.x;
#pragma unroll 1
  for (int64_t from = first; from < first + kAdafactorRows && from < g.height; from += kAtOnce) {
    const auto has = [&](int64_t row) {
      return column < g.width && row < g.height && row * g.width + column < g.size;
    };
#pragma unroll
    for (int slot = 0; slot < kAtOnce; ++slot) {
      if (has(from + slot)) load(slot, (from + slot) * g.width + column);
    }
#pragma unroll
    for (int slot = 0; slot < kAtOnce; ++slot) {
      if (has(from + slot)) visit(from + slot, slot, (from + slot) * g.width + column);
    }
    end(from);
  }
}

template <typename Grad, int kCapacity>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    SumKernel(const __grid_constant__ FactorArguments<kCapacity> arguments) {
  __shared__ double squares[kAtOnce][kThreads];
  if (SkipsStep(arguments.parameters)) return;
  const Place place = PlaceOf(arguments);
  const AdafactorTensor& t = place.tensor;
  const AdafactorGrid& g = place.grid;
  // An error of the stream: the host cannot be asked, and doing nothing would pass for a step.
  if (FindStepError<AdafactorPolicy>(arguments.parameters, t.group) != StepError::kNone) Trap();
  const Grad* const grad = static_cast<const Grad*>(t.grad);
  float own[kAtOnce], of_param[kAtOnce];
  const auto load = [&](int slot, int64_t i) {
    own[slot] = static_cast<float>(grad[i]);
    if (t.param != nullptr) of_param[slot] = t.param[i];
  };
  double params = 0.0;
  if (!g.is_matrix) {
    const AdafactorCoefficients c = MakeAdafactorCoefficients(arguments.parameters, t.group);
    float* const scales = t.scales + kAdafactorNumbers;
    double updates = 0.0;
    ForRows(
        g, place.block, load,
        [&](int64_t, int slot, int64_t i) {
          const float scaled = precision::Mul(own[slot], c.multiplier);
          const float v = AdafactorSecondMoment(c, t.factors[i], scaled);
          const float scale = AdafactorElementScale(v);
          t.factors[i] = v;
          scales[i] = scale;
          updates = AddAdafactorSquare(updates, precision::Mul(scaled, scale));
          if (t.param != nullptr) params = AddAdafactorSquare(params, of_param[slot]);
        },
        [](int64_t) {});
    params = SumOfLanes(params, squares[0]);
    updates = SumOfLanes(updates, squares[0]);
    if (threadIdx.x == 0) {
      t.workspace[place.block] = params;
      t.workspace[g.of_updates + place.block] = updates;
    }
    return;
  }
  const float multiplier = MultiplierOf(arguments.parameters);
  const int64_t across = place.block % g.across;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  double of_column = 0.0;
  // Of a column that is not there.
  for (int slot = 0; slot < kAtOnce; ++slot) squares[slot][threadIdx.x] = 0.0;
  ForRows(
      g, place.block, load,
      [&](int64_t, int slot, int64_t) {
        const double square = AddAdafactorSquare(0.0, precision::Mul(own[slot], multiplier));
        squares[slot][threadIdx.x] = square;
        // A square of a float is exact: this is what an fma gives.
        of_column = precision::Add(of_column, square);
        if (t.param != nullptr) params = AddAdafactorSquare(params, of_param[slot]);
      },
      [&](int64_t from) {
        __syncthreads();
        // A warp a row: 8 lanes a thread, halved to one.
        if (from + warp < g.height) {
          double part[kWarps];
          for (int k = 0; k < kWarps; ++k) part[k] = squares[warp][lane + k * kWarp];
          for (int half = kWarps / 2; half > 0; half /= 2) {
            for (int k = 0; k < half; ++k) part[k] = precision::Add(part[k], part[k + half]);
          }
          const double of_row = HalveWarp(part[0]);
          if (lane == 0) t.workspace[g.of_rows + (from + warp) * g.across + across] = of_row;
        }
        __syncthreads();
      });
  const int64_t column = across * kAdafactorColumns + threadIdx.x;
  if (column < t.columns) {
    t.workspace[g.of_columns + place.block / g.across * t.columns + column] = of_column;
  }
  params = SumOfLanes(params, squares[0]);
  if (threadIdx.x == 0) t.workspace[place.block] = params;
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
  const double* const from =
      t.workspace + (is_row ? g.of_rows + i * g.across : g.of_columns + i - t.rows);
  const int64_t count = is_row ? g.across : g.down;
  const int64_t stride = is_row ? 1 : t.columns;
  double sum = from[0];
  for (int64_t k = 1; k < count; ++k) sum = precision::Add(sum, from[k * stride]);
  const AdafactorCoefficients c = MakeAdafactorCoefficients(arguments.parameters, t.group);
  const float mean =
      AdafactorMean(c, arguments.parameters.eps1, t.factors[i], sum, is_row ? t.columns : t.rows);
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
  __shared__ double shared[kThreads];
  if (SkipsStep(arguments.parameters)) return;
  const Place place = PlaceOf(arguments);
  const AdafactorTensor& t = place.tensor;
  const AdafactorGrid& g = place.grid;
  const float multiplier = MultiplierOf(arguments.parameters);
  const Grad* const grad = static_cast<const Grad*>(t.grad);
  const float* const rows = t.scales + kAdafactorNumbers;
  const int64_t column = place.block % g.across * kAdafactorColumns + threadIdx.x;
  const float of_column = column < t.columns ? rows[t.rows + column] : 0.0f;
  float own[kAtOnce];
  double updates = 0.0;
  ForRows(
      g, place.block, [&](int slot, int64_t i) { own[slot] = static_cast<float>(grad[i]); },
      [&](int64_t row, int slot, int64_t) {
        const float scaled = precision::Mul(own[slot], multiplier);
        updates = AddAdafactorSquare(updates, AdafactorUpdate(scaled, rows[row], of_column));
      },
      [](int64_t) {});
  updates = SumOfLanes(updates, shared);
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
  constexpr int kElements = 4;
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
  const int64_t end =
      begin - threadIdx.x + kParamTile < s.size ? begin - threadIdx.x + kParamTile : s.size;
  // Of the element to come; a division where it has left its row.
  int64_t row = has_rows ? (s.first + begin) / s.columns : 0;
  int64_t column = has_rows ? (s.first + begin) % s.columns : s.first + begin;
  for (int64_t from = begin; from < end; from += kElements * kThreads) {
    float g[kElements], p[kElements], m[kElements], by_row[kElements], by_column[kElements];
#pragma unroll
    for (int slot = 0; slot < kElements; ++slot) {
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
    for (int slot = 0; slot < kElements; ++slot) {
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
  return ForEachBatch(
      tensors, count, kMaxGridBlocks, blocks_of, arguments.batch, cudaSuccess,
      [&](int64_t) { return launch(static_cast<unsigned>(arguments.batch.tiles())); });
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
        cudaSuccess,
        [&](int64_t) {
          return LaunchKernel<ParamsKernel<Grad, Copy, capacity>>(
              static_cast<unsigned>(arguments.batch.tiles()), kThreads, stream, arguments);
        });
  });
}

#define BRIGADE_INSTANTIATE(T)                                                    \
  template cudaError_t LaunchAdafactorFactors<T>(const AdafactorTensor*, int64_t, \
                                                 const AdafactorParameters&, cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE
#define BRIGADE_INSTANTIATE(Grad, Copy)                   \
  template cudaError_t LaunchAdafactorParams<Grad, Copy>( \
      const AdafactorSegment*, int64_t, const AdafactorParameters&, cudaStream_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
