#ifndef BRIGADE_KERNELS_ORTHOGONALIZE_ROW_LANES_H_
#define BRIGADE_KERNELS_ORTHOGONALIZE_ROW_LANES_H_

// Rows of a matrix times columns of a factor, and sums of rows, in x86-64's registers: compilers
// store sums after each block, and load what is the same for all elements of a row again for each.

#include <cstdint>
#include <type_traits>
#include <utility>

#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

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

// What a loop over a row asks the memory for, line by line: what it takes a while later, and what
// it takes later still. One row after the other, in the order in which they lie, is what memory is
// fastest at; a core drops what it is asked for while it waits for much, so it is asked twice.
struct RowAhead {
  const float* near;
  const float* far;
};

// Adds whole blocks of kRowLanes elements to `lanes`, [kRows][kColumns][kRowLanes], which with
// kFirst begin at 0: `size` elements, a multiple of that, of kRows rows and of kColumns columns of
// Q, which are `stride` apart, both. For targets without lanes: the compiler's vectors.
template <int kRows, int kColumns, bool kFirst>
BRIGADE_INLINE void MultiplyBlocks(NoLanes, const float* matrix, const float* q, int64_t stride,
                                   int64_t size, const RowAhead&, float* lanes) {
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      const float* const row = matrix + r * stride;
      const float* const column = q + c * stride;
      float* const sums = lanes + (r * kColumns + c) * kRowLanes;
      for (int l = 0; l < kRowLanes && kFirst; ++l) sums[l] = 0.0f;
      for (int64_t i = 0; i < size; i += kRowLanes) {
        BRIGADE_SIMD_LOOP
        for (int l = 0; l < kRowLanes; ++l) {
          sums[l] = precision::Fma(row[i + l], column[i + l], sums[l]);
        }
      }
    }
  }
}

// Adds kRows rows, times their factors, to sums of kColumns columns, which are `distance` apart.
// For targets without AVX-512: the compiler's vectors.
template <int kRows, int kColumns>
BRIGADE_INLINE void AddRows(NoLanes, const float* matrix, int64_t stride,
                            const float (&factors)[kColumns][kRows], const RowAhead&, float* sums,
                            int64_t distance, int64_t width) {
  BRIGADE_SIMD_LOOP
  for (int64_t j = 0; j < width; ++j) {
    ForAll<kColumns>([&](auto c) BRIGADE_SIMD_BODY {
      float sum = sums[c * distance + j];
      ForAll<kRows>([&](auto r) BRIGADE_SIMD_BODY {
        sum = precision::Fma(matrix[r * stride + j], factors[c][r], sum);
      });
      sums[c * distance + j] = sum;
    });
  }
}

#ifdef __x86_64__

// With one row, which comes from memory, the lines ahead are asked for; several share what is
// loaded of Q.
template <int kRows, int kColumns, bool kFirst>
BRIGADE_TARGET_AVX512_LANES void MultiplyBlocks(Avx512Lanes, const float* matrix, const float* q,
                                                int64_t stride, int64_t size, const RowAhead& ahead,
                                                float* lanes) {
  static_assert(kRowLanes == Avx512Lanes::kSize);
  __m512 sums[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      sums[r][c] =
          kFirst ? _mm512_setzero_ps() : _mm512_loadu_ps(lanes + (r * kColumns + c) * kRowLanes);
    }
  }
  for (int64_t i = 0; i < size; i += kRowLanes) {
    __m512 x[kRows];
    for (int r = 0; r < kRows; ++r) x[r] = _mm512_loadu_ps(matrix + r * stride + i);
    if (kRows == 1) {
      __builtin_prefetch(ahead.near + i);
      __builtin_prefetch(ahead.far + i);
    }
    for (int c = 0; c < kColumns; ++c) {
      __m512 y = _mm512_loadu_ps(q + c * stride + i);
      // Else g++ loads it again for each row, and loads are what several rows wait for.
      if (kRows > 1) asm("" : "+v"(y));
      for (int r = 0; r < kRows; ++r) sums[r][c] = _mm512_fmadd_ps(x[r], y, sums[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      _mm512_storeu_ps(lanes + (r * kColumns + c) * kRowLanes, sums[r][c]);
    }
  }
}

// Of two registers of lanes the halves' sums side by side, by quarters of a register or by elements
// of each quarter: lane l takes lane l + n/2, of n lanes, as Halve. With masks, as in
// internal/lanes.h.
#define BRIGADE_HALVE_QUARTERS(x, y, low, high)                \
  _mm512_add_ps(_mm512_maskz_shuffle_f32x4(0xffff, x, y, low), \
                _mm512_maskz_shuffle_f32x4(0xffff, x, y, high))
#define BRIGADE_HALVE_ELEMENTS(x, y, low, high)             \
  _mm512_add_ps(_mm512_maskz_shuffle_ps(0xffff, x, y, low), \
                _mm512_maskz_shuffle_ps(0xffff, x, y, high))

// The sums of a row's lanes with four columns: those of a column are left in a quarter.
BRIGADE_TARGET_AVX512_LANES BRIGADE_INLINE __m512 HalveToQuarters(const __m512 (&sums)[4]) {
  const __m512 low = BRIGADE_HALVE_QUARTERS(sums[0], sums[1], 0x44, 0xee);
  const __m512 high = BRIGADE_HALVE_QUARTERS(sums[2], sums[3], 0x44, 0xee);
  return BRIGADE_HALVE_QUARTERS(low, high, 0x88, 0xdd);
}

// The sums of four rows' quarters, to p[c * rows + r]. One by one these take longer than the
// products of 64 columns.
BRIGADE_TARGET_AVX512_LANES BRIGADE_INLINE void HalveQuarters(const __m512 (&rows_of)[4], float* p,
                                                              int64_t rows) {
  const __m512 low = BRIGADE_HALVE_ELEMENTS(rows_of[0], rows_of[1], 0x44, 0xee);
  const __m512 high = BRIGADE_HALVE_ELEMENTS(rows_of[2], rows_of[3], 0x44, 0xee);
  const __m512 sums = BRIGADE_HALVE_ELEMENTS(low, high, 0x88, 0xdd);
  _mm_storeu_ps(p, _mm512_maskz_extractf32x4_ps(15, sums, 0));
  _mm_storeu_ps(p + rows, _mm512_maskz_extractf32x4_ps(15, sums, 1));
  _mm_storeu_ps(p + 2 * rows, _mm512_maskz_extractf32x4_ps(15, sums, 2));
  _mm_storeu_ps(p + 3 * rows, _mm512_maskz_extractf32x4_ps(15, sums, 3));
}
#undef BRIGADE_HALVE_QUARTERS
#undef BRIGADE_HALVE_ELEMENTS

// The same of lanes that MultiplyBlocks has left, [4][4][kRowLanes].
BRIGADE_TARGET_AVX512_LANES inline void HalveFourByFour(const float* lanes, float* p,
                                                        int64_t rows) {
  __m512 quarters[4];
  for (int r = 0; r < 4; ++r, lanes += 4 * kRowLanes) {
    __m512 sums[4];
    for (int c = 0; c < 4; ++c) sums[c] = _mm512_loadu_ps(lanes + c * kRowLanes);
    quarters[r] = HalveToQuarters(sums);
  }
  HalveQuarters(quarters, p, rows);
}

// The products of four whole rows with four columns of Q: of kWidth columns, or of `columns`, a
// multiple of kRowLanes, if that is 0. Sums stay in registers; lines are asked for `ahead` and
// twice as many elements before.
template <int kWidth>
BRIGADE_TARGET_AVX512_LANES void MultiplyFourRows(const float* matrix, const float* q,
                                                  int64_t columns, int64_t ahead, float* p,
                                                  int64_t rows) {
  if (kWidth != 0) columns = kWidth;
  __m512 quarters[4];
  for (int r = 0; r < 4; ++r, matrix += columns) {
    __m512 sums[4];
    for (int c = 0; c < 4; ++c) sums[c] = _mm512_setzero_ps();
    for (int64_t i = 0; i < columns; i += kRowLanes) {
      const __m512 x = _mm512_loadu_ps(matrix + i);
      __builtin_prefetch(matrix + i + ahead);
      __builtin_prefetch(matrix + i + 2 * ahead);
      for (int c = 0; c < 4; ++c) {
        sums[c] = _mm512_fmadd_ps(x, _mm512_loadu_ps(q + c * columns + i), sums[c]);
      }
    }
    quarters[r] = HalveToQuarters(sums);
  }
  HalveQuarters(quarters, p, rows);
}

template <int kRows, int kColumns>
BRIGADE_TARGET_AVX512_LANES void AddRows(Avx512Lanes, const float* matrix, int64_t stride,
                                         const float (&factors)[kColumns][kRows],
                                         const RowAhead& ahead, float* sums, int64_t distance,
                                         int64_t width) {
  __m512 factor[kColumns][kRows];
  for (int c = 0; c < kColumns; ++c) {
    for (int r = 0; r < kRows; ++r) factor[c][r] = _mm512_set1_ps(factors[c][r]);
  }
  int64_t j = 0;
  for (; j + kRowLanes <= width; j += kRowLanes) {
    __m512 x[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = _mm512_loadu_ps(matrix + r * stride + j);
      // Two rows and one come from memory.
      if (kRows > 2) continue;
      __builtin_prefetch(ahead.near + r * stride + j);
      __builtin_prefetch(ahead.far + r * stride + j);
    }
    for (int c = 0; c < kColumns; ++c) {
      float* const to = sums + c * distance + j;
      __m512 sum = _mm512_loadu_ps(to);
      for (int r = 0; r < kRows; ++r) sum = _mm512_fmadd_ps(x[r], factor[c][r], sum);
      _mm512_storeu_ps(to, sum);
    }
  }
  for (; j < width; ++j) {
    for (int c = 0; c < kColumns; ++c) {
      float& sum = sums[c * distance + j];
      for (int r = 0; r < kRows; ++r) {
        sum = precision::Fma(matrix[r * stride + j], factors[c][r], sum);
      }
    }
  }
}

// The sums of `count` rows of kWidth columns, which stay in registers meanwhile, to `sums`. Lines
// are asked for as above.
template <int kWidth, int kColumns>
BRIGADE_TARGET_AVX512_LANES void SumNarrowRows(const float* matrix, const float* p, int64_t rows,
                                               int64_t count, int64_t ahead, float* sums) {
  constexpr int kBlocks = kWidth / kRowLanes;
  __m512 of[kColumns][kBlocks];
  for (int c = 0; c < kColumns; ++c) {
    for (int b = 0; b < kBlocks; ++b) of[c][b] = _mm512_setzero_ps();
  }
  for (int64_t r = 0; r < count; ++r, matrix += kWidth) {
    __m512 factor[kColumns];
    for (int c = 0; c < kColumns; ++c) factor[c] = _mm512_set1_ps(p[c * rows + r]);
    for (int b = 0; b < kBlocks; ++b) {
      const __m512 x = _mm512_loadu_ps(matrix + b * kRowLanes);
      __builtin_prefetch(matrix + b * kRowLanes + ahead);
      __builtin_prefetch(matrix + b * kRowLanes + 2 * ahead);
      for (int c = 0; c < kColumns; ++c) of[c][b] = _mm512_fmadd_ps(x, factor[c], of[c][b]);
    }
  }
  for (int c = 0; c < kColumns; ++c) {
    for (int b = 0; b < kBlocks; ++b) {
      _mm512_storeu_ps(sums + c * kWidth + b * kRowLanes, of[c][b]);
    }
  }
}

// Writes kRows rows of a product of rank kColumns past the caches and takes it from M: `width`
// columns, a multiple of kRowLanes, where rows of the product begin at lines. Rows of both are
// `stride` apart. Through a buffer the product took as long again as the rest.
template <int kRows, int kColumns>
BRIGADE_TARGET_AVX512_LANES void RestoreLines(const float (&factors)[kColumns][kRows],
                                              const float* q, int64_t stride, const float* ahead,
                                              float* product, float* matrix, int64_t width) {
  __m512 factor[kColumns][kRows];
  for (int c = 0; c < kColumns; ++c) {
    for (int r = 0; r < kRows; ++r) factor[c][r] = _mm512_set1_ps(factors[c][r]);
  }
  for (int64_t j = 0; j < width; j += kRowLanes) {
    __m512 y[kColumns];
    for (int c = 0; c < kColumns; ++c) y[c] = _mm512_loadu_ps(q + c * stride + j);
    for (int r = 0; r < kRows; ++r) {
      float* const at = matrix + r * stride + j;
      __builtin_prefetch(ahead + r * stride + j, /*rw=*/1);
      __m512 sum = factor[0][r] * y[0];
      for (int c = 1; c < kColumns; ++c) sum = _mm512_fmadd_ps(factor[c][r], y[c], sum);
      _mm512_storeu_ps(at, _mm512_loadu_ps(at) - sum);
      __m512i bits = _mm512_castps_si512(sum);
      BRIGADE_OPAQUE_REGISTER(bits);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(product + r * stride + j), bits);
    }
  }
}

// One column at a time: there are 16 registers.
template <int kRows, int kColumns, bool kFirst>
__attribute__((target("avx2,fma"))) void MultiplyBlocks(Avx2Lanes, const float* matrix,
                                                        const float* q, int64_t stride,
                                                        int64_t size, const RowAhead&,
                                                        float* lanes) {
  static_assert(kRowLanes == 2 * Avx2Lanes::kSize);
  for (int c = 0; c < kColumns; ++c) {
    __m256 low[kRows], high[kRows];
    for (int r = 0; r < kRows; ++r) {
      float* const from = lanes + (r * kColumns + c) * kRowLanes;
      low[r] = kFirst ? _mm256_setzero_ps() : _mm256_loadu_ps(from);
      high[r] = kFirst ? _mm256_setzero_ps() : _mm256_loadu_ps(from + 8);
    }
    for (int64_t i = 0; i < size; i += kRowLanes) {
      const __m256 y_low = _mm256_loadu_ps(q + c * stride + i);
      const __m256 y_high = _mm256_loadu_ps(q + c * stride + i + 8);
      for (int r = 0; r < kRows; ++r) {
        const float* const row = matrix + r * stride + i;
        low[r] = _mm256_fmadd_ps(_mm256_loadu_ps(row), y_low, low[r]);
        high[r] = _mm256_fmadd_ps(_mm256_loadu_ps(row + 8), y_high, high[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      float* const to = lanes + (r * kColumns + c) * kRowLanes;
      _mm256_storeu_ps(to, low[r]);
      _mm256_storeu_ps(to + 8, high[r]);
    }
  }
}

template <int kRows, int kColumns>
BRIGADE_INLINE void AddRows(Avx2Lanes, const float* matrix, int64_t stride,
                            const float (&factors)[kColumns][kRows], const RowAhead& ahead,
                            float* sums, int64_t distance, int64_t width) {
  AddRows(NoLanes(), matrix, stride, factors, ahead, sums, distance, width);
}

#endif  // __x86_64__

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ORTHOGONALIZE_ROW_LANES_H_
