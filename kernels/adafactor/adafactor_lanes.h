#ifndef BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_LANES_H_
#define BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_LANES_H_

// Sums of a row of a tile with AVX-512, in the bits that adafactor_math.h gives them. The row's
// squares are halved in registers, and gradients widened there: compilers store each square, each
// half of them and each converted gradient, and a processor stores one register a cycle.

#include <cstdint>

#include "brigade/kernels/adafactor/adafactor_math.h"
#include "brigade/kernels/internal/lanes.h"

#ifdef __x86_64__

namespace brigade::kernels::adafactor_internal {

#define BRIGADE_TILE_FUNCTION BRIGADE_TARGET_AVX512_LANES __attribute__((always_inline)) inline

// 16 lanes. Forms with a mask for what lanes.h says of g++ 12.
struct WideLanes {
  __m512d low, high;
};
inline constexpr int kBlock = 16;

BRIGADE_TILE_FUNCTION WideLanes Widen(__m512 x) {
  const __m512d bits = _mm512_castps_pd(x);
  const __m256 low = _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xf, bits, 0));
  const __m256 high = _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xf, bits, 1));
  return {_mm512_maskz_cvtps_pd(0xff, low), _mm512_maskz_cvtps_pd(0xff, high)};
}
BRIGADE_TILE_FUNCTION WideLanes LoadLanes(const double* from) {
  return {_mm512_loadu_pd(from), _mm512_loadu_pd(from + kBlock / 2)};
}
BRIGADE_TILE_FUNCTION void StoreLanes(const WideLanes& x, double* to) {
  _mm512_storeu_pd(to, x.low);
  _mm512_storeu_pd(to + kBlock / 2, x.high);
}
// A square of a float is exact in double: an fma rounds as an addition of it.
BRIGADE_TILE_FUNCTION WideLanes AddSquares(const WideLanes& sums, const WideLanes& x) {
  return {_mm512_fmadd_pd(x.low, x.low, sums.low), _mm512_fmadd_pd(x.high, x.high, sums.high)};
}
BRIGADE_TILE_FUNCTION double HalveLanes(const WideLanes& x) {
  const __m512d eight = x.low + x.high;
  const __m256d four =
      _mm512_maskz_extractf64x4_pd(0xf, eight, 0) + _mm512_maskz_extractf64x4_pd(0xf, eight, 1);
  const __m128d two = _mm256_castpd256_pd128(four) + _mm256_extractf128_pd(four, 1);
  return two[0] + two[1];
}

// Memory that a loop comes to soon: processors fetch ahead within a page alone. 4096: of 1024,
// 2048, 4096 and 8192 the best with rows of 16 bits (Zen 5).
BRIGADE_TILE_FUNCTION void FetchAhead(const void* from, int64_t bytes) {
  constexpr uintptr_t kAhead = 4096, kLine = 64;
  const uintptr_t first = reinterpret_cast<uintptr_t>(from) + kAhead;
  for (uintptr_t at = first; at < first + static_cast<uintptr_t>(bytes); at += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(at));
  }
}

// The arrays of a row of a tile, from the tile's first column on.
template <typename Grad>
struct TileRow {
  const Grad* grad;
  // Null without parameters.
  const float* param;
  float multiplier;
  // The tile's lanes, [256]: sums of columns, and of parameters.
  double* columns;
  double* params;
};

// Adds a block of columns, and of parameters, to their lanes; gives `to` with the row's squares, or
// these alone.
template <int kIndex, bool kHasParam, bool kIsFirst, typename Grad>
BRIGADE_TILE_FUNCTION WideLanes AddBlock(const TileRow<Grad>& row, const WideLanes& to) {
  constexpr int kAt = kIndex * kBlock;
  const WideLanes x = Widen(Avx512Lanes::Load(row.grad + kAt) * _mm512_set1_ps(row.multiplier));
  StoreLanes(AddSquares(LoadLanes(row.columns + kAt), x), row.columns + kAt);
  if constexpr (kHasParam) {
    const WideLanes p = Widen(Avx512Lanes::Load(row.param + kAt));
    StoreLanes(AddSquares(LoadLanes(row.params + kAt), p), row.params + kAt);
  }
  return kIsFirst ? WideLanes{x.low * x.low, x.high * x.high} : AddSquares(to, x);
}

// The row's lanes in blocks kFirst, kFirst + kStep and so on, halved to one block.
template <int kFirst, int kStep, bool kHasParam, typename Grad>
BRIGADE_TILE_FUNCTION WideLanes HalveRow(const TileRow<Grad>& row) {
  if constexpr (2 * kStep * kBlock == kAdafactorColumns) {
    const WideLanes low = AddBlock<kFirst, kHasParam, true>(row, WideLanes());
    return AddBlock<kFirst + kStep, kHasParam, false>(row, low);
  } else {
    const WideLanes low = HalveRow<kFirst, 2 * kStep, kHasParam>(row);
    const WideLanes high = HalveRow<kFirst + kStep, 2 * kStep, kHasParam>(row);
    return {low.low + high.low, low.high + high.high};
  }
}

// Adds a row to the lanes of a tile; gives its own sum.
template <bool kHasParam, typename Grad>
BRIGADE_TARGET_AVX512_LANES double SumRow(const TileRow<Grad>& row) {
  FetchAhead(row.grad, kAdafactorColumns * sizeof(Grad));
  if constexpr (kHasParam) FetchAhead(row.param, kAdafactorColumns * sizeof(float));
  return HalveLanes(HalveRow<0, 1, kHasParam>(row));
}

// Adds the squares of a row's updates to the lanes of a tile.
template <typename Grad>
BRIGADE_TARGET_AVX512_LANES void AddUpdates(const Grad* grad, float multiplier, float row_scale,
                                            const float* column_scales, double* lanes) {
  // With g++ a line with each block, where that is one: its version 16 took 1.13 times as long if
  // all of a row's were asked for first. clang unrolls no loop that asks, and took 1.1 times.
#ifdef __clang__
  constexpr bool kWithLoads = false;
#else
  constexpr bool kWithLoads = kBlock * sizeof(Grad) == 64;
#endif
  if constexpr (!kWithLoads) FetchAhead(grad, kAdafactorColumns * sizeof(Grad));
  const __m512 by = _mm512_set1_ps(multiplier), of_row = _mm512_set1_ps(row_scale);
  for (int64_t at = 0; at < kAdafactorColumns; at += kBlock) {
    if constexpr (kWithLoads) FetchAhead(grad + at, 64);
    const __m512 g = Avx512Lanes::Load(grad + at) * by;
    const WideLanes update = Widen(g * of_row * _mm512_loadu_ps(column_scales + at));
    StoreLanes(AddSquares(LoadLanes(lanes + at), update), lanes + at);
  }
}

#undef BRIGADE_TILE_FUNCTION

}  // namespace brigade::kernels::adafactor_internal

#endif  // __x86_64__

#endif  // BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_LANES_H_
