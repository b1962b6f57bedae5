#ifndef BRIGADE_KERNELS_SIGN_PACK_SIGN_LANES_H_
#define BRIGADE_KERNELS_SIGN_PACK_SIGN_LANES_H_

// Bits of signs from x86-64's registers and back, beside the lanes of internal/lanes.h: compilers
// gather bits one by one.

#include <cstdint>

#include "brigade/kernels/internal/lanes.h"

namespace brigade::kernels {

#ifdef __x86_64__

#define BRIGADE_LANES_FUNCTION \
  BRIGADE_TARGET_AVX512_LANES __attribute__((always_inline)) inline static
struct Avx512Signs {
  using Lanes = Avx512Lanes;
  using Bits = __mmask16;

  // A bit for each number that is negative.
  BRIGADE_LANES_FUNCTION Bits Negative(Lanes::Floats x) {
    return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
  }
  // `minus` where the bit is 1, else `plus`.
  BRIGADE_LANES_FUNCTION Lanes::Floats Choose(Bits bits, Lanes::Floats plus, Lanes::Floats minus) {
    return _mm512_mask_blend_ps(bits, plus, minus);
  }
};
#undef BRIGADE_LANES_FUNCTION

#define BRIGADE_LANES_FUNCTION \
  BRIGADE_TARGET_AVX2_LANES __attribute__((always_inline)) inline static
struct Avx2Signs {
  using Lanes = Avx2Lanes;
  using Bits = uint8_t;

  BRIGADE_LANES_FUNCTION Bits Negative(Lanes::Floats x) {
    return static_cast<Bits>(_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ)));
  }
  BRIGADE_LANES_FUNCTION Lanes::Floats Choose(Bits bits, Lanes::Floats plus, Lanes::Floats minus) {
    const __m256i bit_of_lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set =
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), bit_of_lane), bit_of_lane);
    return _mm256_blendv_ps(plus, minus, _mm256_castsi256_ps(set));
  }
};
#undef BRIGADE_LANES_FUNCTION

#endif  // __x86_64__

template <typename Lanes>
struct SignsOfLanes {
  using Type = NoLanes;
};
#ifdef __x86_64__
template <>
struct SignsOfLanes<Avx512Lanes> {
  using Type = Avx512Signs;
};
template <>
struct SignsOfLanes<Avx2Lanes> {
  using Type = Avx2Signs;
};
#endif
// The struct for a SIMD target, or NoLanes.
template <SimdTarget kTarget>
using SignsOf = typename SignsOfLanes<LanesOf<kTarget>>::Type;

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SIGN_PACK_SIGN_LANES_H_
