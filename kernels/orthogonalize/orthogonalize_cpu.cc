// Low-rank factors on the CPU: M is read once, 4 bytes an element, or read and written beside the
// product, 12 bytes. What meets it, up to four columns of a factor at a time, comes from caches; of
// higher ranks M comes from there again.

#include "brigade/kernels/orthogonalize/orthogonalize_cpu.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/halve_lanes.h"
#include "brigade/kernels/nontemporal_store.h"
#include "brigade/kernels/orthogonalize/row_lanes.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// Columns of M, whose sums with four of a factor are half of AVX-512's registers: compiled by
// themselves.
[[maybe_unused]] constexpr int kNarrow = 64;
// Elements of a small factor, which is written at once where it goes past the caches: stores of a
// few bytes to lines that are not there took a tenth of the time that a list of small matrices
// takes.
constexpr int64_t kSmallFactor = 2048;
// Columns of a factor that one loop takes.
constexpr int kMaxColumns = 4;
// Blocks of lanes of which each lane is loaded and stored once, in dot products.
constexpr int kBlocksAtOnce = 4;
// Rows of M that LowRankColumns takes at once, whose addresses may be the same modulo 4096: as many
// as leave the ways of a first-level cache to others.
constexpr int kRowsAtOnce = 4;
// Columns of M that it takes, and that LowRankRows and LowRankRestore take of more rows before the
// next ones: their sums, or the factor's elements, stay in the first-level cache, where from the
// second one they come too slowly for products with each.
constexpr int64_t kColumnsAtOnce = 1024;
// Rows of M that LowRankRows takes of these.
constexpr int64_t kRowsOfBlock = 32;

// How many rows LowRankRows and LowRankColumns take at once with AVX-512 of matrices that come from
// memory: as few as arithmetic allows, in the order in which they lie, so that the processor reads
// ahead of them. Four share their loads from the first-level cache, which is faster where M is in a
// cache as well: up to half of a second-level one.
#ifdef __x86_64__
template <typename Lanes>
constexpr bool kIsAvx512 = std::is_same_v<Lanes, Avx512Lanes>;
#else
template <typename Lanes>
constexpr bool kIsAvx512 = false;
#endif
template <typename Lanes>
constexpr int kRowsMultipliedAtOnce = kIsAvx512<Lanes> ? 1 : 4;
template <typename Lanes>
constexpr int kRowsAddedAtOnce = kIsAvx512<Lanes> ? 2 : kRowsAtOnce;
constexpr int64_t kCachedElements = int64_t{128} << 10;

// Where a loop over pieces of kColumnsAtOnce columns, of `count` rows each, finds what comes one
// and two steps of `at_once` rows after row r and column j.
BRIGADE_INLINE RowAhead AheadOf(const float* matrix, int64_t columns, int64_t count, int64_t r,
                                int64_t j, int64_t at_once) {
  if (columns <= kColumnsAtOnce) {
    const float* const from = matrix + r * columns;
    const int64_t step = std::max(kColumnsAtOnce, at_once * columns);
    return {from + step, from + 2 * step};
  }
  const auto piece = [&](int64_t row) BRIGADE_SIMD_BODY {
    if (row < count) return matrix + row * columns + j;
    const int64_t next = j + kColumnsAtOnce;
    return next < columns ? matrix + (row - count) * columns + next : matrix + row * columns;
  };
  return {piece(r + at_once), piece(r + 2 * at_once)};
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

// The sums of a row's lanes with the columns of Q, after the elements from `whole` on, which are
// fewer than the lanes: p[c * rows].
template <int kColumns>
BRIGADE_INLINE void FinishRow(const float* row, const float* q, int64_t columns, int64_t whole,
                              float (&lanes)[kColumns][kRowLanes], float* p, int64_t rows) {
  for (int c = 0; c < kColumns; ++c) {
    const float* const column = q + c * columns;
    float(&sums)[kRowLanes] = lanes[c];
    BRIGADE_SIMD_LOOP
    for (int64_t i = whole; i < columns; ++i) {
      sums[i - whole] = precision::Fma(row[i], column[i], sums[i - whole]);
    }
    p[c * rows] = Halve(sums);
  }
}

// The products of `count` rows of M, at most kRowsOfBlock, with kColumns columns of Q, to
// p[c * rows + r]: kAtOnce rows at once.
template <int kAtOnce, int kColumns, typename Lanes>
BRIGADE_INLINE void MultiplyRows(Lanes, const float* matrix, const float* q, int64_t columns,
                                 int64_t count, float* p, int64_t rows) {
#ifdef __x86_64__
  if constexpr (kIsAvx512<Lanes> && kColumns == 4) {
    const bool narrow = columns == kNarrow;
    if (narrow || (kAtOnce == 1 && columns <= kColumnsAtOnce && columns % kRowLanes == 0)) {
      for (; count >= 4; count -= 4, matrix += 4 * columns, p += 4) {
        narrow ? MultiplyFourRows<kNarrow>(matrix, q, columns, kColumnsAtOnce, p, rows)
               : MultiplyFourRows<0>(matrix, q, columns, kColumnsAtOnce, p, rows);
      }
    }
  }
#endif
  alignas(64) float lanes[kRowsOfBlock][kColumns][kRowLanes];
  const int64_t whole = columns / kRowLanes * kRowLanes;
  const auto multiply_all = [&](auto first, int64_t j) BRIGADE_SIMD_BODY {
    const auto multiply = [&](auto at_once, int64_t r) BRIGADE_SIMD_BODY {
      MultiplyBlocks<at_once, kColumns, first>(
          Lanes(), matrix + r * columns + j, q + j, columns, std::min(kColumnsAtOnce, whole - j),
          AheadOf(matrix, columns, count, r, j, at_once), lanes[r][0]);
    };
    int64_t r = 0;
    for (; r + kAtOnce <= count; r += kAtOnce) multiply(std::integral_constant<int, kAtOnce>(), r);
    for (; r < count; ++r) multiply(std::integral_constant<int, 1>(), r);
  };
  multiply_all(std::true_type(), 0);
  for (int64_t j = kColumnsAtOnce; j < whole; j += kColumnsAtOnce) {
    multiply_all(std::false_type(), j);
  }
  int64_t r = 0;
#ifdef __x86_64__
  if constexpr (kIsAvx512<Lanes> && kColumns == 4) {
    for (; r + 4 <= count && whole == columns; r += 4) HalveFourByFour(lanes[r][0], p + r, rows);
  }
#endif
  for (; r < count; ++r) {
    FinishRow<kColumns>(matrix + r * columns, q, columns, whole, lanes[r], p + r, rows);
  }
}

// Fetches as much as a small factor has behind it: in a list mostly the next matrix's, while the
// rows of this one are read.
BRIGADE_INLINE void FetchBehind(const float* factor, int64_t size) {
  if (size > kSmallFactor) return;
  for (int64_t i = size; i < 2 * size; i += kRowLanes) __builtin_prefetch(factor + i);
}

// Where behind the address `space`, a multiple of 64, the sums of rows that begin at `matrix` lie
// best, in elements: three lines further on in their page than the rows, 34 GB/s of 38 instead of
// 28 (Zen 5). Two to five lines are as good, all else is as bad, and was chance: it seems that each
// line of sums is then used just before lines of M take others' places in its part of a first-level
// cache.
constexpr int64_t kPage = 4096 / sizeof(float);
inline int64_t PlaceOfSums(uintptr_t space, const float* matrix) {
  constexpr uintptr_t kAhead = 3 * kCacheLine;
  const uintptr_t bytes = reinterpret_cast<uintptr_t>(matrix) + kAhead - space;
  const auto elements = static_cast<int64_t>(bytes / sizeof(float)) % kPage;
  return elements / kRowLanes * kRowLanes;
}

// Adds kRows rows of M, times their elements of P, to sums of columns.
template <int kRows, int kColumns, typename Lanes>
BRIGADE_INLINE void AddRowsTimes(Lanes, const float* matrix, int64_t columns, const float* p,
                                 int64_t rows, const RowAhead& ahead, float* sums, int64_t width) {
  float factors[kColumns][kRows];
  for (int c = 0; c < kColumns; ++c) {
    for (int r = 0; r < kRows; ++r) factors[c][r] = p[c * rows + r];
  }
  AddRows(Lanes(), matrix, columns, factors, ahead, sums, kColumnsAtOnce, width);
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

void LowRankRowsRange(const LowRankSegment& s, bool past_caches, int64_t begin, int64_t end) {
  if (s.columns == 0) return;
  alignas(64) float buffer[kSmallFactor];
  const int64_t size = s.rank * s.rows;
  const bool at_once = past_caches && begin == 0 && end == s.rows && size <= kSmallFactor;
  float* const to = at_once ? buffer : s.p;
  if (at_once) FetchBehind(s.q, s.rank * s.columns);
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    const auto multiply = [&](auto at_once) BRIGADE_SIMD_BODY {
      for (int64_t i = begin; i < end; i += kRowsOfBlock) {
        ForColumns(s.rank, [&](auto count, int k) BRIGADE_SIMD_BODY {
          MultiplyRows<at_once, count>(Lanes(), s.matrix + i * s.columns, s.q + k * s.columns,
                                       s.columns, std::min(kRowsOfBlock, end - i),
                                       to + k * s.rows + i, s.rows);
        });
      }
    };
    if (kIsAvx512<Lanes> && s.rows * s.columns <= kCachedElements) {
      multiply(std::integral_constant<int, 4>());
    } else {
      multiply(std::integral_constant<int, kRowsMultipliedAtOnce<Lanes>>());
    }
  });
  if (at_once) NontemporalStore(s.p, buffer, size * static_cast<int64_t>(sizeof(float)));
}

void LowRankTilesRange(const LowRankSegment& s, bool past_caches, int64_t begin, int64_t end) {
  const bool is_whole = LowRankWorkspaceSize(s.rows, s.columns, s.rank) == 0;
  alignas(64) float buffer[kSmallFactor];
  const int64_t size = s.rank * s.columns;
  const bool at_once = past_caches && is_whole && size <= kSmallFactor;
  if (at_once) FetchBehind(s.p, s.rank * s.rows);
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    for (int64_t tile = begin; tile < end; tile += kRowTile) {
      const int64_t tile_end = std::min(end, tile + kRowTile);
      float* const to = at_once    ? buffer
                        : is_whole ? s.q
                                   : s.workspace + tile / kRowTile * s.columns * s.rank;
#ifdef __x86_64__
      if constexpr (kIsAvx512<Lanes>) {
        if (s.columns == kNarrow) {
          ForColumns(s.rank, [&](auto count, int k) BRIGADE_SIMD_BODY {
            SumNarrowRows<kNarrow, count>(s.matrix + tile * kNarrow, s.p + k * s.rows + tile,
                                          s.rows, tile_end - tile, kColumnsAtOnce,
                                          to + k * kNarrow);
          });
          continue;
        }
      }
#endif
      for (int64_t j = 0; j < s.columns; j += kColumnsAtOnce) {
        const int64_t width = std::min(kColumnsAtOnce, s.columns - j);
        ForColumns(s.rank, [&](auto count, int k) BRIGADE_SIMD_BODY {
          const float* const matrix = s.matrix + tile * s.columns;
          alignas(64) float space[count * kColumnsAtOnce + kPage];
          float* const sums = space + PlaceOfSums(reinterpret_cast<uintptr_t>(space), matrix + j);
          std::fill(sums, sums + count * kColumnsAtOnce, 0.0f);
          const float* const p = s.p + k * s.rows;
          const auto add = [&](auto rows, int64_t i) BRIGADE_SIMD_BODY {
            const RowAhead ahead = AheadOf(matrix, s.columns, tile_end - tile, i - tile, j, rows);
            AddRowsTimes<rows, count>(Lanes(), s.matrix + i * s.columns + j, s.columns, p + i,
                                      s.rows, ahead, sums, width);
          };
          int64_t i = tile;
          const auto add_all = [&](auto rows) BRIGADE_SIMD_BODY {
            for (; i + rows <= tile_end; i += rows) add(rows, i);
          };
          if (s.rows * s.columns <= kCachedElements) {
            add_all(std::integral_constant<int, kRowsAtOnce>());
          }
          add_all(std::integral_constant<int, kRowsAddedAtOnce<Lanes>>());
          add_all(std::integral_constant<int, 1>());
          for (int c = 0; c < count; ++c) {
            const float* const of_column = sums + c * kColumnsAtOnce;
            std::copy(of_column, of_column + width, to + (k + c) * s.columns + j);
          }
        });
      }
    }
  });
  if (at_once) NontemporalStore(s.q, buffer, size * static_cast<int64_t>(sizeof(float)));
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
  // Lines of the product that go past the caches from where they are made.
  [[maybe_unused]] const bool lines = past_caches && s.rank <= kMaxColumns &&
                                      s.columns % kRowLanes == 0 && ElementsToLine(s.product) == 0;
  RunSimdWithTag([&]([[maybe_unused]] auto simd) BRIGADE_SIMD_BODY {
    constexpr int kRows = 2;
    alignas(64) float buffer[kRowsAtOnce][kColumnsAtOnce];
    const auto restore = [&](auto rows, int64_t i, int64_t j) BRIGADE_SIMD_BODY {
      const int64_t width = std::min(kColumnsAtOnce, s.columns - j);
      float* const matrix = s.matrix + i * s.columns + j;
      float* const to = s.product + i * s.columns + j;
#ifdef __x86_64__
      if constexpr (decltype(simd)::kValue == SimdTarget::kAvx512) {
        if (lines) {
          return ForColumns(s.rank, [&](auto count, int) BRIGADE_SIMD_BODY {
            float factors[decltype(count)::value][decltype(rows)::value];
            for (int c = 0; c < count; ++c) {
              for (int r = 0; r < rows; ++r) factors[c][r] = s.p[c * s.rows + i + r];
            }
            const RowAhead ahead =
                AheadOf(s.matrix + begin * s.columns, s.columns, end - begin, i - begin, j, rows);
            RestoreLines(factors, s.q + j, s.columns, ahead.near, to, matrix, width);
          });
        }
      }
#endif
      float* const product = past_caches ? buffer[0] : to;
      const int64_t distance = past_caches ? kColumnsAtOnce : s.columns;
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
    };
    for (int64_t j = 0; j < s.columns; j += kColumnsAtOnce) {
      int64_t i = begin;
      // Four rows share what is loaded of Q; in a buffer they would take half of a first-level
      // cache.
      for (; lines && i + kRowsAtOnce <= end; i += kRowsAtOnce) {
        restore(std::integral_constant<int, kRowsAtOnce>(), i, j);
      }
      for (; i + kRows <= end; i += kRows) restore(std::integral_constant<int, kRows>(), i, j);
      for (; i < end; ++i) restore(std::integral_constant<int, 1>(), i, j);
    }
  });
}

}  // namespace brigade::kernels
