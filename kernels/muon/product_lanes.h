#ifndef BRIGADE_KERNELS_MUON_PRODUCT_LANES_H_
#define BRIGADE_KERNELS_MUON_PRODUCT_LANES_H_

// The innermost loop of a product: a tile of sums that stays in registers while it takes one term
// after the other, which compilers do not keep there. As many sums as hide the latency of fma.

#include <cstdint>

#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// The tile of targets without lanes: the compiler's vectors.
template <typename Lanes>
struct ProductTile {
  static constexpr int kRows = 4;
  static constexpr int kColumns = 16;
};

// Adds to sums[r * stride + c] the products of `terms` rows of a panel of A, [term][kRows], and one
// of B, [term][kColumns], in ascending order.
BRIGADE_INLINE void AddProducts(NoLanes, const float* a, const float* b, int64_t terms, float* sums,
                                int64_t stride) {
  using Tile = ProductTile<NoLanes>;
  for (int64_t t = 0; t < terms; ++t) {
    for (int r = 0; r < Tile::kRows; ++r) {
      BRIGADE_SIMD_LOOP
      for (int c = 0; c < Tile::kColumns; ++c) {
        float& sum = sums[r * stride + c];
        sum = precision::Fma(a[t * Tile::kRows + r], b[t * Tile::kColumns + c], sum);
      }
    }
  }
}

#ifdef __x86_64__

template <>
struct ProductTile<Avx512Lanes> {
  static constexpr int kRows = 8;
  static constexpr int kColumns = 32;
};

BRIGADE_TARGET_AVX512_LANES inline void AddProducts(Avx512Lanes, const float* a, const float* b,
                                                    int64_t terms, float* sums, int64_t stride) {
  using Tile = ProductTile<Avx512Lanes>;
  __m512 sum[Tile::kRows][2];
  for (int r = 0; r < Tile::kRows; ++r) {
    sum[r][0] = _mm512_loadu_ps(sums + r * stride);
    sum[r][1] = _mm512_loadu_ps(sums + r * stride + 16);
  }
  for (int64_t t = 0; t < terms; ++t) {
    const __m512 low = _mm512_loadu_ps(b + t * Tile::kColumns);
    const __m512 high = _mm512_loadu_ps(b + t * Tile::kColumns + 16);
#pragma GCC unroll 8
    for (int r = 0; r < Tile::kRows; ++r) {
      const __m512 x = _mm512_set1_ps(a[t * Tile::kRows + r]);
      sum[r][0] = _mm512_fmadd_ps(x, low, sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(x, high, sum[r][1]);
    }
  }
  for (int r = 0; r < Tile::kRows; ++r) {
    _mm512_storeu_ps(sums + r * stride, sum[r][0]);
    _mm512_storeu_ps(sums + r * stride + 16, sum[r][1]);
  }
}

template <>
struct ProductTile<Avx2Lanes> {
  static constexpr int kRows = 4;
  static constexpr int kColumns = 16;
};

__attribute__((target("avx2,fma"))) inline void AddProducts(Avx2Lanes, const float* a,
                                                            const float* b, int64_t terms,
                                                            float* sums, int64_t stride) {
  using Tile = ProductTile<Avx2Lanes>;
  __m256 sum[Tile::kRows][2];
  for (int r = 0; r < Tile::kRows; ++r) {
    sum[r][0] = _mm256_loadu_ps(sums + r * stride);
    sum[r][1] = _mm256_loadu_ps(sums + r * stride + 8);
  }
  for (int64_t t = 0; t < terms; ++t) {
    const __m256 low = _mm256_loadu_ps(b + t * Tile::kColumns);
    const __m256 high = _mm256_loadu_ps(b + t * Tile::kColumns + 8);
#pragma GCC unroll 4
    for (int r = 0; r < Tile::kRows; ++r) {
      const __m256 x = _mm256_set1_ps(a[t * Tile::kRows + r]);
      sum[r][0] = _mm256_fmadd_ps(x, low, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(x, high, sum[r][1]);
    }
  }
  for (int r = 0; r < Tile::kRows; ++r) {
    _mm256_storeu_ps(sums + r * stride, sum[r][0]);
    _mm256_storeu_ps(sums + r * stride + 8, sum[r][1]);
  }
}

#endif  // __x86_64__

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_MUON_PRODUCT_LANES_H_
