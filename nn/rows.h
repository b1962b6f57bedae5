#ifndef BRIGADE_NN_ROWS_H_
#define BRIGADE_NN_ROWS_H_

// How layers walk matrices, so that each formula is written once for CPU and GPU. A formula is a
// struct of plain pointers and sizes:
//
//   rows      fn(row, r): everything about row r; `row` says how its columns are shared: all by one
//             thread (CPU), or by the 32 threads of a warp (GPU).
//   columns   sums over the rows of each of `outer` matrices, kSums for a column.
//             fn.Rows(outer): how many rows. fn.Add<kWidth>(outer, first, begin, end, sums): adds
//             rows [begin, end) of kWidth columns from `first` on, in ascending order.
//             fn.Store<kWidth>(outer, first, sums): writes what the sums are for.
//             Rows go in parts of kRowsOfPart. The rows of a part are added in ascending order,
//             then the parts are: the same bits whether one thread has a column, or many blocks
//             have its parts. Parts are numbered through; where matrices differ in rows,
//             fn.FirstPart(outer) and fn.OuterOf(part) say which parts are whose; there may be
//             gaps.

#include <cstdint>
#include <limits>

#include "brigade/kernels/simd.h"
#include "brigade/precision/host_device.h"

#if BRIGADE_CUDA
#include <driver_types.h>
#endif

// On each lambda of a formula, which must melt into its SIMD loop.
#ifdef __CUDACC__
#define BRIGADE_NN_BODY
#else
#define BRIGADE_NN_BODY __attribute__((always_inline))
#endif

namespace brigade::nn {

// A row that one thread has for itself. Sums go into 16 parts, which the compiler makes a vector.
class ThreadRow {
 public:
  static constexpr int kThreads = 1;

  BRIGADE_INLINE bool first() const { return true; }  // exactly one thread of the row

  template <typename Fn>
  BRIGADE_INLINE void ForEach(int64_t columns, const Fn& fn) const {
    BRIGADE_SIMD_LOOP
    for (int64_t c = 0; c < columns; ++c) fn(c);
  }

  template <typename W, typename Term>
  BRIGADE_INLINE W Sum(int64_t columns, const Term& term) const {
    return Fold<W>(columns, W(0), term, [](W a, W b) BRIGADE_NN_BODY { return a + b; });
  }

  template <typename W, typename Term>
  BRIGADE_INLINE W Max(int64_t columns, const Term& term) const {
    return Fold<W>(columns, -std::numeric_limits<W>::infinity(), term,
                   [](W a, W b) BRIGADE_NN_BODY { return a > b ? a : b; });
  }

 private:
  static constexpr int kParts = 16;

  template <typename W, typename Term, typename Combine>
  BRIGADE_INLINE static W Fold(int64_t columns, W start, const Term& term, const Combine& combine) {
    W parts[kParts];
    for (int j = 0; j < kParts; ++j) parts[j] = start;
    int64_t c = 0;
    for (; c + kParts <= columns; c += kParts) {
      for (int j = 0; j < kParts; ++j) parts[j] = combine(parts[j], term(c + j));
    }
    for (; c < columns; ++c) parts[0] = combine(parts[0], term(c));
    for (int j = 1; j < kParts; ++j) parts[0] = combine(parts[0], parts[j]);
    return parts[0];
  }
};

// Sums that a CPU thread keeps in registers.
inline constexpr int kColumnsAtOnce = 64;

// Enough that a part's sum costs 1/16 of the traffic of 16-bit rows, and few enough that 8192 rows
// of 768 columns are 384 blocks. Untuned.
inline constexpr int64_t kRowsOfPart = 64;

BRIGADE_INLINE constexpr int64_t PartsOf(int64_t rows) {
  return (rows + kRowsOfPart - 1) / kRowsOfPart;
}

template <typename Formula, int kWidth>
using SumsOf = typename Formula::Sum[Formula::kSums][kWidth];

// The sums of rows of part `part` of a matrix; `sums` are 0 before.
template <int kWidth, typename Formula>
BRIGADE_INLINE void AddPart(const Formula& formula, int64_t outer, int64_t first, int64_t part,
                            SumsOf<Formula, kWidth>& sums) {
  const int64_t begin = part * kRowsOfPart, rows = formula.Rows(outer);
  const int64_t end = begin + kRowsOfPart < rows ? begin + kRowsOfPart : rows;
  formula.template Add<kWidth>(outer, first, begin, end, sums);
}

// All about kWidth columns, by one thread.
template <int kWidth, typename Formula>
BRIGADE_INLINE void SumColumns(const Formula& formula, int64_t outer, int64_t first) {
  SumsOf<Formula, kWidth> totals = {};
  for (int64_t part = 0; part < PartsOf(formula.Rows(outer)); ++part) {
    SumsOf<Formula, kWidth> sums = {};
    AddPart<kWidth>(formula, outer, first, part, sums);
    for (int s = 0; s < Formula::kSums; ++s) {
      for (int j = 0; j < kWidth; ++j) totals[s][j] += sums[s][j];
    }
  }
  formula.template Store<kWidth>(outer, first, totals);
}

#if BRIGADE_CUDA
// The kernels, in rows_cuda.cuh; instantiated by formulas_cuda.cu for each formula.
template <typename Formula>
cudaError_t LaunchRows(const Formula& formula, int64_t rows, cudaStream_t stream);
template <typename Formula>
cudaError_t LaunchColumns(const Formula& formula, int64_t outer, int64_t columns,
                          cudaStream_t stream);
// The same in two steps: parts, of which there are at most `parts`, then columns. `partials` is
// memory for parts * kSums * columns sums.
template <typename Formula>
cudaError_t LaunchParts(const Formula& formula, int64_t outer, int64_t columns, int64_t parts,
                        typename Formula::Sum* partials, cudaStream_t stream);
#endif

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ROWS_H_
