#ifndef BRIGADE_EXAMPLES_GPT_NN_ROWS_H_
#define BRIGADE_EXAMPLES_GPT_NN_ROWS_H_

// How layers walk matrices, so that each formula is written once for CPU and GPU. A formula is a
// struct of plain pointers and sizes:
//
//   rows      fn(row, r): everything about row r; `row` says how its columns are shared: all by one
//             thread (CPU), or by the 32 threads of a warp (GPU).
//   columns   fn.Columns<kWidth>(outer, first): everything about kWidth columns from `first` on,
//             which one thread walks from top to bottom: sums over rows, in ascending order.

#include <cstdint>
#include <limits>

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
  BRIGADE_INLINE bool first() const { return true; }  // exactly one thread of the row

  template <typename Fn>
  BRIGADE_INLINE void ForEach(int64_t columns, const Fn& fn) const {
#pragma GCC ivdep
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

#if BRIGADE_CUDA
// The kernels, in rows_cuda.cuh; instantiated by formulas_cuda.cu for each formula.
template <typename Formula>
cudaError_t LaunchRows(const Formula& formula, int64_t rows, cudaStream_t stream);
template <typename Formula>
cudaError_t LaunchColumns(const Formula& formula, int64_t outer, int64_t columns,
                          cudaStream_t stream);
#endif

}  // namespace brigade::nn

#endif  // BRIGADE_EXAMPLES_GPT_NN_ROWS_H_
