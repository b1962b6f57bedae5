#ifndef BRIGADE_NN_ROWS_CUDA_CUH_
#define BRIGADE_NN_ROWS_CUDA_CUH_

// The kernels that run every formula of rows.h on the GPU. Untuned: a warp takes a row, a thread
// takes a column or, where columns are few and long, a part of one.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "brigade/device/requirements.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/nn/rows.h"
#include "brigade/nn/warp.h"

namespace brigade::nn {

inline constexpr int kThreads = 256;
// What follows the parts is short: it spreads over more blocks.
inline constexpr int kFinishThreads = 32;
inline constexpr int64_t kMaxBlocks = int64_t{1} << 20;  // beyond, blocks take turns

// A row that a warp shares: thread i has the columns i, i + 32, ...
class WarpRow {
 public:
  static constexpr int kThreads = kWarpSize;

  __device__ bool first() const { return lane_ == 0; }

  template <typename Fn>
  __device__ void ForEach(int64_t columns, const Fn& fn) const {
    for (int64_t c = lane_; c < columns; c += kWarpSize) fn(c);
  }

  template <typename W, typename Term>
  __device__ W Sum(int64_t columns, const Term& term) const {
    return Fold<W>(columns, W(0), term, [](W a, W b) { return a + b; });
  }

  template <typename W, typename Term>
  __device__ W Max(int64_t columns, const Term& term) const {
    // Not from term(0): the lane that owns it may overwrite it, and a shuffle orders no memory.
    return Fold<W>(columns, -std::numeric_limits<W>::infinity(), term,
                   [](W a, W b) { return a > b ? a : b; });
  }

 private:
  template <typename W, typename Term, typename Combine>
  __device__ W Fold(int64_t columns, W start, const Term& term, const Combine& combine) const {
    W part = start;
    for (int64_t c = lane_; c < columns; c += kWarpSize) part = combine(part, term(c));
    for (int other = kWarpSize / 2; other > 0; other /= 2) {
      part = combine(part, __shfl_xor_sync(0xffffffffu, part, other));
    }
    return part;
  }

  const int lane_ = static_cast<int>(threadIdx.x) % kWarpSize;
};

template <typename Formula>
__global__ void __launch_bounds__(kThreads) RowsKernel(const Formula formula, int64_t rows) {
  constexpr int kRowsOfBlock = kThreads / kWarpSize;
  const WarpRow row;
  for (int64_t r = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarpSize; r < rows;
       r += int64_t{gridDim.x} * kRowsOfBlock) {
    formula(row, r);
  }
}

template <typename Formula>
__global__ void __launch_bounds__(kThreads)
    ColumnsKernel(const Formula formula, int64_t outer, int64_t columns) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < outer * columns;
       i += int64_t{gridDim.x} * kThreads) {
    SumColumns<1>(formula, i / columns, i % columns);
  }
}

template <typename Formula>
__device__ int64_t FirstPart(const Formula& formula, int64_t outer) {
  if constexpr (requires { formula.FirstPart(outer); }) {
    return formula.FirstPart(outer);
  } else {
    return outer * PartsOf(formula.Rows(0));
  }
}

template <typename Formula>
__device__ int64_t OuterOf(const Formula& formula, int64_t part) {
  if constexpr (requires { formula.OuterOf(part); }) {
    return formula.OuterOf(part);
  } else {
    return part / PartsOf(formula.Rows(0));
  }
}

// partials[part, s, column]
template <typename Formula>
__global__ void __launch_bounds__(kThreads)
    PartsKernel(const Formula formula, int64_t outer, int64_t columns, int64_t parts,
                typename Formula::Sum* partials) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < parts * columns;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t part = i / columns, column = i % columns;
    const int64_t o = OuterOf(formula, part);
    // There may be fewer parts than there is room for.
    if (o >= outer) return;
    const int64_t part_of_outer = part - FirstPart(formula, o);
    if (part_of_outer >= PartsOf(formula.Rows(o))) continue;
    SumsOf<Formula, 1> sums = {};
    AddPart<1>(formula, o, column, part_of_outer, sums);
    for (int s = 0; s < Formula::kSums; ++s) {
      partials[(part * Formula::kSums + s) * columns + column] = sums[s][0];
    }
  }
}

template <typename Formula>
__global__ void __launch_bounds__(kFinishThreads)
    FinishKernel(const Formula formula, int64_t outer, int64_t columns,
                 const typename Formula::Sum* partials) {
  for (int64_t i = int64_t{blockIdx.x} * kFinishThreads + threadIdx.x; i < outer * columns;
       i += int64_t{gridDim.x} * kFinishThreads) {
    const int64_t o = i / columns, column = i % columns;
    const int64_t begin = FirstPart(formula, o), end = begin + PartsOf(formula.Rows(o));
    SumsOf<Formula, 1> totals = {};
#pragma unroll 8
    for (int64_t part = begin; part < end; ++part) {
      for (int s = 0; s < Formula::kSums; ++s) {
        totals[s][0] += partials[(part * Formula::kSums + s) * columns + column];
      }
    }
    formula.template Store<1>(o, column, totals);
  }
}

inline unsigned Blocks(int64_t items, int64_t items_of_block) {
  return static_cast<unsigned>(std::min((items + items_of_block - 1) / items_of_block, kMaxBlocks));
}

template <typename Formula>
cudaError_t LaunchRows(const Formula& formula, int64_t rows, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  return kernels::LaunchKernel<RowsKernel<Formula>>(Blocks(rows, kThreads / kWarpSize), kThreads,
                                                    stream, formula, rows);
}

template <typename Formula>
cudaError_t LaunchColumns(const Formula& formula, int64_t outer, int64_t columns,
                          cudaStream_t stream) {
  if (outer * columns == 0) return cudaSuccess;
  return kernels::LaunchKernel<ColumnsKernel<Formula>>(Blocks(outer * columns, kThreads), kThreads,
                                                       stream, formula, outer, columns);
}

template <typename Formula>
cudaError_t LaunchParts(const Formula& formula, int64_t outer, int64_t columns, int64_t parts,
                        typename Formula::Sum* partials, cudaStream_t stream) {
  if (outer * columns == 0) return cudaSuccess;
  if (parts > 0) {
    const cudaError_t error = kernels::LaunchKernel<PartsKernel<Formula>>(
        Blocks(parts * columns, kThreads), kThreads, stream, formula, outer, columns, parts,
        partials);
    if (error != cudaSuccess) return error;
  }
  return kernels::LaunchKernel<FinishKernel<Formula>>(Blocks(outer * columns, kFinishThreads),
                                                      kFinishThreads, stream, formula, outer,
                                                      columns, partials);
}

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ROWS_CUDA_CUH_
