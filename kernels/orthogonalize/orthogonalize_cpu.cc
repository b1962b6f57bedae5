// Low-rank factors on the CPU: M is read once, 4 bytes an element, or read and written beside the
// product, 12 bytes. What meets it, up to four columns of a factor at a time, comes from caches; of
// higher ranks M comes from there again.

#include "brigade/kernels/orthogonalize/orthogonalize_cpu.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "brigade/kernels/internal/halve_lanes.h"
#include "brigade/kernels/nontemporal_store.h"
#include "brigade/kernels/orthogonalize/row_lanes.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// Columns of a factor that one loop takes.
constexpr int kMaxColumns = 4;
// Blocks of lanes of which each lane is loaded and stored once, in dot products.
constexpr int kBlocksAtOnce = 4;
// Rows of M that LowRankColumns takes at once, whose addresses may be the same modulo 4096: as many
// as leave the ways of a first-level cache to others.
constexpr int kRowsAtOnce = 4;
// Columns of M that it takes: their sums stay in the first-level cache.
constexpr int64_t kColumnsAtOnce = 1024;

// Calls run(std::integral_constant(i)) for i from 0 to kCount - 1: no loop that a compiler has to
// unroll before it takes the one around it for vectors.
template <typename Run, int... kIndices>
BRIGADE_INLINE void ForAll(std::integer_sequence<int, kIndices...>, const Run& run) {
  (run(std::integral_constant<int, kIndices>()), ...);
}
template <int kCount, typename Run>
BRIGADE_INLINE void ForAll(const Run& run) {
  ForAll(std::make_integer_sequence<int, kCount>(), run);
}

// Calls run(std::integral_constant(columns), first) for all columns of a factor, as many at a time
// as one loop takes.
template <typename Run>
BRIGADE_INLINE void ForColumns(int rank, const Run& run) {
  int k = 0;
  for (; k + kMaxColumns <= rank; k += kMaxColumns) {
    run(std::integral_constant<int, kMaxColumns>(), k);
  }
  if (rank - k == 3) run(std::integral_constant<int, 3>(), k);
  if (rank - k == 2) run(std::integral_constant<int, 2>(), k);
  if (rank - k == 1) run(std::integral_constant<int, 1>(), k);
}

template <int kBlocks>
BRIGADE_INLINE void AddBlocks(const float* x, const float* y, double (&lanes)[kDotLanes]) {
  BRIGADE_SIMD_LOOP
  for (int l = 0; l < kDotLanes; ++l) {
    double sum = lanes[l];
    ForAll<kBlocks>([&](auto b) BRIGADE_SIMD_BODY {
      sum = AddProduct(sum, x[b * kDotLanes + l], y[b * kDotLanes + l]);
    });
    lanes[l] = sum;
  }
}

BRIGADE_INLINE double Dot(const float* x, const float* y, int64_t size) {
  alignas(64) double lanes[kDotLanes] = {};
  int64_t i = 0;
  for (; i + kBlocksAtOnce * kDotLanes <= size; i += kBlocksAtOnce * kDotLanes) {
    AddBlocks<kBlocksAtOnce>(x + i, y + i, lanes);
  }
  for (; i + kDotLanes <= size; i += kDotLanes) AddBlocks<1>(x + i, y + i, lanes);
  BRIGADE_SIMD_LOOP
  for (int64_t l = 0; l < size - i; ++l) lanes[l] = AddProduct(lanes[l], x[i + l], y[i + l]);
  return Halve(lanes);
}

// p[c * rows + r]: the products of rows of M with columns of Q.
template <int kRows, int kColumns, typename Lanes>
BRIGADE_INLINE void RowDots(Lanes, const float* matrix, const float* q, int64_t columns, float* p,
                            int64_t rows) {
  alignas(64) float lanes[kRows][kColumns][kRowLanes];
  const int64_t whole = columns / kRowLanes * kRowLanes;
  MultiplyBlocks<kRows, kColumns>(Lanes(), matrix, q, columns, whole, lanes[0][0]);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      const float* const row = matrix + r * columns;
      const float* const column = q + c * columns;
      float(&sums)[kRowLanes] = lanes[r][c];
      BRIGADE_SIMD_LOOP
      for (int64_t i = whole; i < columns; ++i) {
        sums[i - whole] = precision::Fma(row[i], column[i], sums[i - whole]);
      }
      p[c * rows + r] = Halve(sums);
    }
  }
}

// Adds kRows rows of M, times their elements of P, to sums of columns.
template <int kRows, int kColumns>
BRIGADE_INLINE void AddRows(const float* matrix, int64_t columns, const float* p, int64_t rows,
                            float (&sums)[kColumns][kColumnsAtOnce], int64_t width) {
  float factors[kColumns][kRows];
  for (int c = 0; c < kColumns; ++c) {
    for (int r = 0; r < kRows; ++r) factors[c][r] = p[c * rows + r];
  }
  BRIGADE_SIMD_LOOP
  for (int64_t j = 0; j < width; ++j) {
    ForAll<kColumns>([&](auto c) BRIGADE_SIMD_BODY {
      float sum = sums[c][j];
      ForAll<kRows>([&](auto r) BRIGADE_SIMD_BODY {
        sum = precision::Fma(matrix[r * columns + j], factors[c][r], sum);
      });
      sums[c][j] = sum;
    });
  }
}

// Adds kColumns terms of the product for `width` columns of rows of M; after the last ones takes it
// from M. The first term is a product alone. Rows of the product are `distance` apart.
template <int kRows, int kColumns, bool kFirst>
BRIGADE_INLINE void AddTerms(const float* p, int64_t rows, const float* q, int64_t columns,
                             bool last, float* product, int64_t distance, float* matrix,
                             int64_t width) {
  float factors[kColumns][kRows];
  for (int c = 0; c < kColumns; ++c) {
    for (int r = 0; r < kRows; ++r) factors[c][r] = p[c * rows + r];
  }
  const auto term = [&](auto r, int64_t j) BRIGADE_SIMD_BODY {
    float sum = kFirst ? precision::Mul(factors[0][r], q[j])
                       : precision::Fma(factors[0][r], q[j], product[r * distance + j]);
    ForAll<kColumns - 1>([&](auto c) BRIGADE_SIMD_BODY {
      sum = precision::Fma(factors[c + 1][r], q[(c + 1) * columns + j], sum);
    });
    return sum;
  };
  if (last) {
    BRIGADE_SIMD_LOOP
    for (int64_t j = 0; j < width; ++j) {
      ForAll<kRows>([&](auto r) BRIGADE_SIMD_BODY {
        const float sum = term(r, j);
        product[r * distance + j] = sum;
        matrix[r * columns + j] = precision::Sub(matrix[r * columns + j], sum);
      });
    }
  } else {
    BRIGADE_SIMD_LOOP
    for (int64_t j = 0; j < width; ++j) {
      ForAll<kRows>([&](auto r) BRIGADE_SIMD_BODY { product[r * distance + j] = term(r, j); });
    }
  }
}

}  // namespace

void OrthogonalizeMatrix(const OrthogonalizeSegment& segment, double epsilon) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    const int64_t rows = segment.rows;
    for (int k = 0; k < segment.columns && rows > 0; ++k) {
      float* const column = segment.matrix + k * rows;
      const double denominator = Denominator(Dot(column, column, rows), epsilon);
      BRIGADE_SIMD_LOOP
      for (int64_t i = 0; i < rows; ++i) column[i] = Normalized(column[i], denominator);
      for (int later = k + 1; later < segment.columns; ++later) {
        float* const other = segment.matrix + later * rows;
        const auto along = static_cast<float>(Dot(column, other, rows));
        BRIGADE_SIMD_LOOP
        for (int64_t i = 0; i < rows; ++i) other[i] = Without(other[i], along, column[i]);
      }
    }
  });
}

void LowRankRowsRange(const LowRankSegment& s, int64_t begin, int64_t end) {
  if (s.columns == 0) return;
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    const auto multiply = [&](auto rows, int64_t i) BRIGADE_SIMD_BODY {
      ForColumns(s.rank, [&](auto count, int k) BRIGADE_SIMD_BODY {
        RowDots<rows, count>(Lanes(), s.matrix + i * s.columns, s.q + k * s.columns, s.columns,
                             s.p + k * s.rows + i, s.rows);
      });
    };
    int64_t i = begin;
    for (; i + 4 <= end; i += 4) multiply(std::integral_constant<int, 4>(), i);
    for (; i < end; ++i) multiply(std::integral_constant<int, 1>(), i);
  });
}

void LowRankTilesRange(const LowRankSegment& s, int64_t begin, int64_t end) {
  const bool is_whole = LowRankWorkspaceSize(s.rows, s.columns, s.rank) == 0;
  RunSimd([&]() BRIGADE_SIMD_BODY {
    for (int64_t tile = begin; tile < end; tile += kRowTile) {
      const int64_t tile_end = std::min(end, tile + kRowTile);
      float* const to = is_whole ? s.q : s.workspace + tile / kRowTile * s.columns * s.rank;
      for (int64_t j = 0; j < s.columns; j += kColumnsAtOnce) {
        const int64_t width = std::min(kColumnsAtOnce, s.columns - j);
        ForColumns(s.rank, [&](auto count, int k) BRIGADE_SIMD_BODY {
          alignas(64) float sums[count][kColumnsAtOnce] = {};
          const float* const matrix = s.matrix + j;
          const float* const p = s.p + k * s.rows;
          int64_t i = tile;
          for (; i + kRowsAtOnce <= tile_end; i += kRowsAtOnce) {
            AddRows<kRowsAtOnce>(matrix + i * s.columns, s.columns, p + i, s.rows, sums, width);
          }
          for (; i < tile_end; ++i) {
            AddRows<1>(matrix + i * s.columns, s.columns, p + i, s.rows, sums, width);
          }
          for (int c = 0; c < count; ++c) {
            std::copy(sums[c], sums[c] + width, to + (k + c) * s.columns + j);
          }
        });
      }
    }
  });
}

void LowRankColumnsFinish(const LowRankSegment& s) {
  const int64_t size = s.columns * s.rank;
  if (LowRankWorkspaceSize(s.rows, s.columns, s.rank) == 0) return;
  std::copy(s.workspace, s.workspace + size, s.q);
  RunSimd([&]() BRIGADE_SIMD_BODY {
    for (int64_t tile = 1; tile < RowTiles(s.rows); ++tile) {
      const float* const sums = s.workspace + tile * size;
      float* const q = s.q;
      BRIGADE_SIMD_LOOP
      for (int64_t i = 0; i < size; ++i) q[i] = precision::Add(q[i], sums[i]);
    }
  });
}

void LowRankRestoreRange(const LowRankSegment& s, bool past_caches, int64_t begin, int64_t end) {
  if (s.rank == 0) return;
  RunSimd([&]() BRIGADE_SIMD_BODY {
    constexpr int kRows = 2;
    alignas(64) float buffer[kRows][kNontemporalBlock];
    const auto restore = [&](auto rows, int64_t i) BRIGADE_SIMD_BODY {
      for (int64_t j = 0; j < s.columns; j += kNontemporalBlock) {
        const int64_t width = std::min(kNontemporalBlock, s.columns - j);
        float* const matrix = s.matrix + i * s.columns + j;
        float* const to = s.product + i * s.columns + j;
        float* const product = past_caches ? buffer[0] : to;
        const int64_t distance = past_caches ? kNontemporalBlock : s.columns;
        ForColumns(s.rank, [&](auto count, int k) BRIGADE_SIMD_BODY {
          const float* const p = s.p + k * s.rows + i;
          const float* const q = s.q + k * s.columns + j;
          const bool last = k + count == s.rank;
          if (k == 0) {
            AddTerms<rows, count, true>(p, s.rows, q, s.columns, last, product, distance, matrix,
                                        width);
          } else {
            AddTerms<rows, count, false>(p, s.rows, q, s.columns, last, product, distance, matrix,
                                         width);
          }
        });
        for (int r = 0; r < rows && past_caches; ++r) {
          NontemporalStore(to + r * s.columns, buffer[r],
                           width * static_cast<int64_t>(sizeof(float)));
        }
      }
    };
    int64_t i = begin;
    for (; i + kRows <= end; i += kRows) restore(std::integral_constant<int, kRows>(), i);
    for (; i < end; ++i) restore(std::integral_constant<int, 1>(), i);
  });
}

}  // namespace brigade::kernels
