// Low-rank factors on the GPU. M is read once for each four columns of a factor, from memory and
// then from the second-level cache; LowRankRestore moves 12 bytes an element at any rank. A thread
// has 64 bytes of M in flight in LowRankRows, 32 in the others: 32 to 64 KiB an SM.

#include <type_traits>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/warp.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/orthogonalize/orthogonalize_cuda.h"

namespace brigade::kernels {
namespace {

// Segments of 24 and of 64 bytes, with their first tiles, that fill a launch's arguments.
constexpr int kMaxMatrices = 1000;
constexpr int kMaxLowRankSegments = 450;

// Columns of a factor that a thread's registers have sums of. Where fewer are left, the last one
// stands for those that are not there.
constexpr int kColumns = 4;
constexpr int kThreads = 256;
// The rows of a thread in LowRankRows and the elements of each that it loads before the first is
// used, and the rows of a block in LowRankRestore; untuned.
constexpr int kRowsOfThread = 4;
constexpr int kBlocksAtOnce = 4;
constexpr int kRestoreRows = 8;
// Dot products that a block has at once.
constexpr int kDots = 4;

template <int kCapacity>
struct OrthogonalizeArguments {
  double epsilon;
  SegmentBatch<OrthogonalizeSegment, kCapacity> batch;
};
template <int kCapacity>
struct LowRankArguments {
  SegmentBatch<LowRankSegment, kCapacity> batch;
};
static_assert(sizeof(OrthogonalizeArguments<kMaxMatrices>) <= kMaxLaunchArgumentBytes);
static_assert(sizeof(LowRankArguments<kMaxLowRankSegments>) <= kMaxLaunchArgumentBytes);

__device__ int Least(int64_t a, int b) { return static_cast<int>(a < b ? a : b); }

// The sums over the block's threads, each of which is a lane; in all threads.
__device__ void SumThreads(double (&sums)[kDots], int count) {
  __shared__ double lanes[kDots][kDotLanes];
  __shared__ double totals[kDots];
  constexpr int kPart = kDotLanes / kWarp;
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int c = 0; c < kDots; ++c) lanes[c][threadIdx.x] = sums[c];
  __syncthreads();
  if (warp < count) {
    double part[kPart];
    for (int j = 0; j < kPart; ++j) part[j] = lanes[warp][lane + j * kWarp];
    for (int half = kPart / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) part[j] = precision::Add(part[j], part[j + half]);
    }
    const double total = HalveWarp(part[0]);
    if (lane == 0) totals[warp] = total;
  }
  __syncthreads();
  for (int c = 0; c < kDots; ++c) sums[c] = c < count ? totals[c] : 0.0;
}

// One block a matrix. A thread has every kDotLanes-th element of each column, and no other thread
// touches these.
template <int kCapacity>
__global__ void __launch_bounds__(kDotLanes)
    OrthogonalizeKernel(const __grid_constant__ OrthogonalizeArguments<kCapacity> arguments) {
  const OrthogonalizeSegment& s = arguments.batch.segments[arguments.batch.Find(blockIdx.x)];
  const int64_t rows = s.rows;
  for (int k = 0; k < s.columns; ++k) {
    float* const column = s.matrix + k * rows;
    double squares[kDots] = {};
    for (int64_t i = threadIdx.x; i < rows; i += kDotLanes) {
      squares[0] = AddProduct(squares[0], column[i], column[i]);
    }
    SumThreads(squares, 1);
    const double denominator = Denominator(squares[0], arguments.epsilon);
    for (int64_t i = threadIdx.x; i < rows; i += kDotLanes) {
      column[i] = Normalized(column[i], denominator);
    }
    for (int later = k + 1; later < s.columns; later += kDots) {
      const int count = Least(s.columns - later, kDots);
      float* const others = s.matrix + later * rows;
      double dots[kDots] = {};
      for (int64_t i = threadIdx.x; i < rows; i += kDotLanes) {
        const float x = column[i];
        for (int c = 0; c < kDots; ++c) {
          if (c < count) dots[c] = AddProduct(dots[c], x, others[c * rows + i]);
        }
      }
      SumThreads(dots, count);
      for (int64_t i = threadIdx.x; i < rows; i += kDotLanes) {
        const float x = column[i];
        for (int c = 0; c < kDots; ++c) {
          float& other = others[c * rows + i];
          if (c < count) other = Without(other, static_cast<float>(dots[c]), x);
        }
      }
    }
  }
}

// Sums `values` over the threads of half a warp, each of which is a lane: the first becomes the sum
// of number `lane`. In each step a thread hands on the half of the sums that its partner goes on
// with. A recursion, since nvcc does not unroll the loop.
template <int kStep = kRowLanes / 2>
__device__ void SumLanes(float (&values)[kRowsOfThread * kColumns], int lane) {
  static_assert(kRowsOfThread * kColumns == kRowLanes);
  const bool upper = (lane & kStep) != 0;
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    const float sent = upper ? values[i] : values[i + kStep];
    const float kept = upper ? values[i + kStep] : values[i];
    values[i] = precision::Add(kept, __shfl_xor_sync(0xffffffffu, sent, kStep));
  }
  if constexpr (kStep > 1) SumLanes<kStep / 2>(values, lane);
}

// Half a warp has four rows, and a thread every 16th element of them.
template <int kCapacity>
__global__ void __launch_bounds__(kThreads, 3)
    LowRankRowsKernel(const __grid_constant__ LowRankArguments<kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const LowRankSegment& s = batch.segments[index];
  const int lane = threadIdx.x % kRowLanes;
  const int64_t tile = blockIdx.x - batch.first_tile[index];
  const int64_t first = (tile * (kThreads / kRowLanes) + threadIdx.x / kRowLanes) * kRowsOfThread;
  // Of threads behind the last row: no row, but they take part in what a warp does.
  const int64_t row = first < s.rows ? first : s.rows - 1;
  const int rows = first < s.rows ? Least(s.rows - row, kRowsOfThread) : 0;
  const int64_t columns = s.columns;
  const float* const matrix = s.matrix + row * columns;
  for (int k = 0; k < s.rank; k += kColumns) {
    const int count = Least(s.rank - k, kColumns);
    float values[kRowsOfThread * kColumns] = {};
    const auto load = [&](int64_t i, auto& x) {
      for (auto& of_rows : x) {
        for (int r = 0; r < kRowsOfThread; ++r) {
          of_rows[r] = matrix[(r < rows ? r : 0) * columns + i];
        }
        i += kRowLanes;
      }
    };
    const auto sum = [&](int64_t i, const auto& x) {
      for (const auto& of_rows : x) {
        for (int c = 0; c < kColumns; ++c) {
          const float q = s.q[(k + (c < count ? c : 0)) * columns + i];
          for (int r = 0; r < kRowsOfThread; ++r) {
            float& value = values[r * kColumns + c];
            value = precision::Fma(of_rows[r], q, value);
          }
        }
        i += kRowLanes;
      }
    };
    // What comes next is on its way while the factor's elements are fetched and used.
    constexpr int kStep = kBlocksAtOnce * kRowLanes;
    const int64_t steps = columns / kStep;
    float next[kBlocksAtOnce][kRowsOfThread];
    if (steps > 0) load(lane, next);
#pragma unroll 1
    for (int64_t step = 0; step < steps; ++step) {
      float x[kBlocksAtOnce][kRowsOfThread];
      for (int b = 0; b < kBlocksAtOnce; ++b) {
        for (int r = 0; r < kRowsOfThread; ++r) x[b][r] = next[b][r];
      }
      if (step + 1 < steps) load((step + 1) * kStep + lane, next);
      sum(step * kStep + lane, x);
    }
#pragma unroll 1
    for (int64_t i = steps * kStep + lane; i < columns; i += kRowLanes) {
      float x[1][kRowsOfThread];
      load(i, x);
      sum(i, x);
    }
    SumLanes(values, lane);
    const int r = lane / kColumns;
    const int c = lane % kColumns;
    if (r < rows && c < count) s.p[(k + c) * s.rows + row + r] = values[0];
  }
}

// Blocks of columns, one a thread.
__device__ int64_t ColumnTiles(const LowRankSegment& s) { return CeilDiv(s.columns, kThreads); }

template <int kCapacity>
__global__ void __launch_bounds__(kThreads, 4)
    LowRankTilesKernel(const __grid_constant__ LowRankArguments<kCapacity> arguments) {
  __shared__ float factors[kRowTile][kColumns];
  static_assert(kRowTile == kThreads);
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const LowRankSegment& s = batch.segments[index];
  const int64_t tile = blockIdx.x - batch.first_tile[index];
  const int64_t row_tile = tile / ColumnTiles(s);
  const int64_t j = tile % ColumnTiles(s) * kThreads + threadIdx.x;
  const int64_t row = row_tile * kRowTile;
  const int rows = Least(s.rows - row, kRowTile);
  const float* const matrix = s.matrix + row * s.columns + j;
  float* const sums = LowRankWorkspaceSize(s.rows, s.columns, s.rank) == 0
                          ? s.q
                          : s.workspace + row_tile * s.columns * s.rank;
  for (int k = 0; k < s.rank; k += kColumns) {
    const int count = Least(s.rank - k, kColumns);
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < rows) {
      for (int c = 0; c < kColumns; ++c) {
        factors[threadIdx.x][c] = s.p[(k + Least(c, count - 1)) * s.rows + row + threadIdx.x];
      }
    }
    __syncthreads();
    if (j >= s.columns) continue;
    float column[kColumns] = {};
#pragma unroll 8
    for (int r = 0; r < rows; ++r) {
      const float x = matrix[r * s.columns];
      for (int c = 0; c < kColumns; ++c) column[c] = precision::Fma(x, factors[r][c], column[c]);
    }
    for (int c = 0; c < kColumns; ++c) {
      if (c < count) sums[(k + c) * s.columns + j] = column[c];
    }
  }
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    LowRankFinishKernel(const __grid_constant__ LowRankArguments<kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const LowRankSegment& s = batch.segments[index];
  const int64_t size = s.columns * s.rank;
  const int64_t i = (blockIdx.x - batch.first_tile[index]) * kThreads + threadIdx.x;
  if (i >= size) return;
  float sum = s.workspace[i];
  const int64_t tiles = RowTiles(s.rows);
#pragma unroll 4
  for (int64_t tile = 1; tile < tiles; ++tile) {
    sum = precision::Add(sum, s.workspace[tile * size + i]);
  }
  s.q[i] = sum;
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads, 6)
    LowRankRestoreKernel(const __grid_constant__ LowRankArguments<kCapacity> arguments) {
  __shared__ float factors[kMaxLowRank][kRestoreRows];
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const LowRankSegment& s = batch.segments[index];
  const int64_t tile = blockIdx.x - batch.first_tile[index];
  const int64_t row = tile / ColumnTiles(s) * kRestoreRows;
  const int64_t j = tile % ColumnTiles(s) * kThreads + threadIdx.x;
  const int rows = Least(s.rows - row, kRestoreRows);
  for (int i = threadIdx.x; i < s.rank * kRestoreRows; i += kThreads) {
    const int r = i % kRestoreRows;
    factors[i / kRestoreRows][r] = s.p[i / kRestoreRows * s.rows + row + Least(r, rows - 1)];
  }
  __syncthreads();
  if (j >= s.columns) return;
  float* const matrix = s.matrix + row * s.columns + j;
  float* const product = s.product + row * s.columns + j;
  float x[kRestoreRows], sums[kRestoreRows];
  for (int r = 0; r < kRestoreRows; ++r) x[r] = r < rows ? matrix[r * s.columns] : 0.0f;
  const float q = s.q[j];
  for (int r = 0; r < kRestoreRows; ++r) sums[r] = precision::Mul(factors[0][r], q);
  for (int k = 1; k < s.rank; ++k) {
    const float next = s.q[k * s.columns + j];
    for (int r = 0; r < kRestoreRows; ++r) {
      sums[r] = precision::Fma(factors[k][r], next, sums[r]);
    }
  }
  for (int r = 0; r < kRestoreRows; ++r) {
    if (r >= rows) break;
    product[r * s.columns] = sums[r];
    matrix[r * s.columns] = precision::Sub(x[r], sums[r]);
  }
}

bool IsEmpty(const LowRankSegment& s) { return s.rows == 0 || s.columns == 0 || s.rank == 0; }

// Calls launch(capacity, blocks, arguments) for each launch of the list; blocks_of(segment) says
// how many blocks one that is not empty has.
template <typename BlocksOf, typename Launch>
cudaError_t ForLowRankBlocks(const LowRankSegment* segments, int64_t count,
                             const BlocksOf& blocks_of, const Launch& launch) {
  return WithCapacity<kMaxLowRankSegments>(count, [&](auto capacity) {
    LowRankArguments<capacity> arguments;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [&](const LowRankSegment& s) { return IsEmpty(s) ? int64_t{0} : blocks_of(s); },
        arguments.batch, cudaSuccess,
        [&](int64_t) {
          return launch(capacity, static_cast<unsigned>(arguments.batch.tiles()), arguments);
        });
  });
}

}  // namespace

cudaError_t LaunchOrthogonalize(const OrthogonalizeSegment* segments, int64_t count, double epsilon,
                                cudaStream_t stream) {
  return WithCapacity<kMaxMatrices>(count, [&](auto capacity) {
    OrthogonalizeArguments<capacity> arguments;
    arguments.epsilon = epsilon;
    return ForEachBatch(
        segments, count, kMaxGridBlocks,
        [](const OrthogonalizeSegment& s) {
          return int64_t{s.rows == 0 || s.columns == 0 ? 0 : 1};
        },
        arguments.batch, cudaSuccess,
        [&](int64_t) {
          const auto blocks = static_cast<unsigned>(arguments.batch.tiles());
          return LaunchKernel<OrthogonalizeKernel<capacity>>(blocks, kDotLanes, stream, arguments);
        });
  });
}

cudaError_t LaunchLowRankRows(const LowRankSegment* segments, int64_t count, cudaStream_t stream) {
  return ForLowRankBlocks(
      segments, count,
      [](const LowRankSegment& s) { return CeilDiv(s.rows, kThreads / kRowLanes * kRowsOfThread); },
      [&](auto capacity, unsigned blocks, const auto& arguments) {
        return LaunchKernel<LowRankRowsKernel<capacity>>(blocks, kThreads, stream, arguments);
      });
}

cudaError_t LaunchLowRankColumns(const LowRankSegment* segments, int64_t count,
                                 cudaStream_t stream) {
  const cudaError_t error = ForLowRankBlocks(
      segments, count,
      [](const LowRankSegment& s) { return RowTiles(s.rows) * CeilDiv(s.columns, kThreads); },
      [&](auto capacity, unsigned blocks, const auto& arguments) {
        return LaunchKernel<LowRankTilesKernel<capacity>>(blocks, kThreads, stream, arguments);
      });
  if (error != cudaSuccess) return error;
  return ForLowRankBlocks(
      segments, count,
      [](const LowRankSegment& s) {
        return s.rows <= kRowTile ? 0 : CeilDiv(s.columns * s.rank, kThreads);
      },
      [&](auto capacity, unsigned blocks, const auto& arguments) {
        return LaunchKernel<LowRankFinishKernel<capacity>>(blocks, kThreads, stream, arguments);
      });
}

cudaError_t LaunchLowRankRestore(const LowRankSegment* segments, int64_t count,
                                 cudaStream_t stream) {
  return ForLowRankBlocks(
      segments, count,
      [](const LowRankSegment& s) {
        return CeilDiv(s.rows, kRestoreRows) * CeilDiv(s.columns, kThreads);
      },
      [&](auto capacity, unsigned blocks, const auto& arguments) {
        return LaunchKernel<LowRankRestoreKernel<capacity>>(blocks, kThreads, stream, arguments);
      });
}

}  // namespace brigade::kernels
