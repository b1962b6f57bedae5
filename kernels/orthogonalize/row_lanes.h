#ifndef BRIGADE_KERNELS_ORTHOGONALIZE_ROW_LANES_H_
#define BRIGADE_KERNELS_ORTHOGONALIZE_ROW_LANES_H_

// Rows of a matrix times columns of a factor, whose sums stay in x86-64's registers from a row's
// begin to its end: compilers store them after each block.

#include <cstdint>

#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// Adds whole blocks of kRowLanes elements to sums that begin at 0: `size` elements, a multiple of
// that, of kRows rows and of kColumns columns of Q, which are `stride` apart, both. `lanes` is
// [kRows][kColumns][kRowLanes]. For targets without lanes: the compiler's vectors.
template <int kRows, int kColumns>
BRIGADE_INLINE void MultiplyBlocks(NoLanes, const float* matrix, const float* q, int64_t stride,
                                   int64_t size, float* lanes) {
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      const float* const row = matrix + r * stride;
      const float* const column = q + c * stride;
      float* const sums = lanes + (r * kColumns + c) * kRowLanes;
      for (int l = 0; l < kRowLanes; ++l) sums[l] = 0.0f;
      for (int64_t i = 0; i < size; i += kRowLanes) {
        BRIGADE_SIMD_LOOP
        for (int l = 0; l < kRowLanes; ++l) {
          sums[l] = precision::Fma(row[i + l], column[i + l], sums[l]);
        }
      }
    }
  }
}

#ifdef __x86_64__

template <int kRows, int kColumns>
BRIGADE_TARGET_AVX512_LANES void MultiplyBlocks(Avx512Lanes, const float* matrix, const float* q,
                                                int64_t stride, int64_t size, float* lanes) {
  static_assert(kRowLanes == Avx512Lanes::kSize);
  __m512 sums[kRows][kColumns];
  for (auto& row : sums) {
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  }
  for (int64_t i = 0; i < size; i += kRowLanes) {
    __m512 x[kRows];
    for (int r = 0; r < kRows; ++r) {
      x[r] = _mm512_loadu_ps(matrix + r * stride + i);
      // The next rows: prefetchers of processors begin anew in each.
      if (kRows > 1) __builtin_prefetch(matrix + (kRows + r) * stride + i, 0, 2);
    }
    for (int c = 0; c < kColumns; ++c) {
      __m512 y = _mm512_loadu_ps(q + c * stride + i);
      // Else g++ loads it again for each row, and loads are what this loop waits for.
      asm("" : "+v"(y));
      for (int r = 0; r < kRows; ++r) sums[r][c] = _mm512_fmadd_ps(x[r], y, sums[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      _mm512_storeu_ps(lanes + (r * kColumns + c) * kRowLanes, sums[r][c]);
    }
  }
}

// One column at a time: there are 16 registers.
template <int kRows, int kColumns>
__attribute__((target("avx2,fma"))) void MultiplyBlocks(Avx2Lanes, const float* matrix,
                                                        const float* q, int64_t stride,
                                                        int64_t size, float* lanes) {
  static_assert(kRowLanes == 2 * Avx2Lanes::kSize);
  for (int c = 0; c < kColumns; ++c) {
    __m256 low[kRows], high[kRows];
    for (int r = 0; r < kRows; ++r) low[r] = high[r] = _mm256_setzero_ps();
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

#endif  // __x86_64__

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ORTHOGONALIZE_ROW_LANES_H_
