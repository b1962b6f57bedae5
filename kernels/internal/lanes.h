#ifndef BRIGADE_KERNELS_INTERNAL_LANES_H_
#define BRIGADE_KERNELS_INTERNAL_LANES_H_

// Floats in x86-64's registers, loaded from and stored as any type of an array, with the
// instructions that convert fp16. Compilers do not find those in the loops over Half of
// precision/float16.h: a cast takes a quarter of the time with these in the first-level cache, and
// the same with every compiler. Same bits as there, also where a user has subnormal floats flushed:
// these instructions do not look at that.
//
// Functions that use a struct are compiled for its instructions, by the macro before it. Two
// registers are stored at a time, as many as fill one with 16 bits each; past the caches to
// addresses that are multiples of a cache line, and followed by NontemporalStoreFence.

#include <cstdint>

#include "brigade/kernels/simd.h"
#include "brigade/precision/float16.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace brigade::kernels {

// What targets without a struct of their own have: the compiler's vectors.
struct NoLanes {};

template <SimdTarget kTarget>
struct LanesOfTarget {
  using Type = NoLanes;
};
template <SimdTarget kTarget>
using LanesOf = typename LanesOfTarget<kTarget>::Type;

#ifdef __x86_64__

// Hides from the compiler what wrote a register, before a store past the caches: where that were
// floats, clang 19 (of bfloat16) and 22 (of fp32 too) make an ordinary store of it, 0.7 as fast.
#define BRIGADE_OPAQUE_REGISTER(bits) __asm__("" : "+v"(bits))

#define BRIGADE_TARGET_AVX512_LANES __attribute__((target("avx512f,avx512bw,avx512vl")))
#define BRIGADE_LANES_FUNCTION \
  BRIGADE_TARGET_AVX512_LANES __attribute__((always_inline)) inline static

struct Avx512Lanes {
  static constexpr int64_t kSize = 16;
  using Floats = __m512;

  BRIGADE_LANES_FUNCTION Floats Fill(float value) { return _mm512_set1_ps(value); }

  BRIGADE_LANES_FUNCTION Floats Load(const float* from) { return _mm512_loadu_ps(from); }
  BRIGADE_LANES_FUNCTION Floats Load(const precision::Half* from) {
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  BRIGADE_LANES_FUNCTION Floats Load(const precision::BFloat16* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16));
  }

  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void Store(float* to, Floats low, Floats high) {
    StoreLine<kPastCaches>(to, _mm512_castps_si512(low));
    StoreLine<kPastCaches>(to + kSize, _mm512_castps_si512(high));
  }
  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void Store(precision::Half* to, Floats low, Floats high) {
    StoreLine<kPastCaches>(
        to, _mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(Narrow(low)), Narrow(high), 1));
  }
  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void Store(precision::BFloat16* to, Floats low, Floats high) {
    // The odd ones of the 64 pieces of 16 bits.
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    StoreLine<kPastCaches>(to, _mm512_permutex2var_epi16(Round(low), upper, Round(high)));
  }

 private:
  // The forms without a mask start, in g++ 12, from a register that it then warns of.
  static constexpr __mmask16 kAll = 0xffff;

  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void StoreLine(void* to, __m512i bits) {
    if constexpr (kPastCaches) {
      BRIGADE_OPAQUE_REGISTER(bits);
      _mm512_stream_si512(static_cast<__m512i*>(to), bits);
    } else {
      _mm512_storeu_si512(to, bits);
    }
  }

  BRIGADE_LANES_FUNCTION __m256i Narrow(Floats x) {
    const __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    return _mm512_mask_cvtps_ph(_mm256_set1_epi16(0x7fff), number, x, _MM_FROUND_TO_NEAREST_INT);
  }

  // A bfloat16 in the upper half of each word.
  BRIGADE_LANES_FUNCTION __m512i Round(Floats x) {
    const __m512i word = _mm512_castps_si512(x);
    const __m512i raised = _mm512_add_epi32(word, _mm512_set1_epi32(0x7fff));
    const __mmask16 odd = _mm512_test_epi32_mask(word, _mm512_set1_epi32(0x10000));
    const __m512i rounded = _mm512_mask_add_epi32(raised, odd, raised, _mm512_set1_epi32(1));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fff0000));
  }
};
template <>
struct LanesOfTarget<SimdTarget::kAvx512> {
  using Type = Avx512Lanes;
};
#undef BRIGADE_LANES_FUNCTION

#define BRIGADE_TARGET_AVX2_LANES __attribute__((target("avx2,f16c")))
#define BRIGADE_LANES_FUNCTION \
  BRIGADE_TARGET_AVX2_LANES __attribute__((always_inline)) inline static

struct Avx2Lanes {
  static constexpr int64_t kSize = 8;
  using Floats = __m256;

  BRIGADE_LANES_FUNCTION Floats Fill(float value) { return _mm256_set1_ps(value); }

  BRIGADE_LANES_FUNCTION Floats Load(const float* from) { return _mm256_loadu_ps(from); }
  BRIGADE_LANES_FUNCTION Floats Load(const precision::Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  BRIGADE_LANES_FUNCTION Floats Load(const precision::BFloat16* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void Store(float* to, Floats low, Floats high) {
    StoreHalfLine<kPastCaches>(to, _mm256_castps_si256(low));
    StoreHalfLine<kPastCaches>(to + kSize, _mm256_castps_si256(high));
  }
  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void Store(precision::Half* to, Floats low, Floats high) {
    const __m256i bits = _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                                          _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    const __m256i nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));
    StoreHalfLine<kPastCaches>(to, _mm256_blendv_epi8(bits, _mm256_set1_epi16(0x7fff), nan));
  }
  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void Store(precision::BFloat16* to, Floats low, Floats high) {
    // The packing instruction goes by halves of a register: their quarters change places.
    const __m256i packed = _mm256_packus_epi32(Round(low), Round(high));
    StoreHalfLine<kPastCaches>(to, _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
  }

 private:
  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void StoreHalfLine(void* to, __m256i bits) {
    if constexpr (kPastCaches) {
      BRIGADE_OPAQUE_REGISTER(bits);
      _mm256_stream_si256(static_cast<__m256i*>(to), bits);
    } else {
      _mm256_storeu_si256(static_cast<__m256i*>(to), bits);
    }
  }

  // A bfloat16 in the lower half of each word.
  BRIGADE_LANES_FUNCTION __m256i Round(Floats x) {
    const __m256i word = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(word, 16), _mm256_set1_epi32(1));
    const __m256i raised = _mm256_add_epi32(word, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(raised, odd), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fff), nan);
  }
};
template <>
struct LanesOfTarget<SimdTarget::kAvx2> {
  using Type = Avx2Lanes;
};
#undef BRIGADE_LANES_FUNCTION

#endif  // __x86_64__

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_LANES_H_
