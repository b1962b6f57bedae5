#ifndef BRIGADE_KERNELS_BLOCK_QUANT_QUANT_LANES_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_QUANT_LANES_H_

// What blocks of codes need of x86-64's registers beside the lanes of internal/lanes.h: magnitudes,
// and integers narrowed to bytes. Loops for the compiler's vectoriser took two to three times as
// long from 16 bits, more than memory does.

#include <cstdint>

#include "brigade/kernels/internal/lanes.h"

namespace brigade::kernels {

#ifdef __x86_64__

#define BRIGADE_CODES_FUNCTION __attribute__((target("avx2"), always_inline)) inline
BRIGADE_CODES_FUNCTION int32_t LargestMagnitude32(__m256i x) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(m);
}
BRIGADE_CODES_FUNCTION uint16_t LargestMagnitude16(__m256i x) {
  const __m128i m = _mm_max_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  // The one instruction for it finds the smallest.
  const __m128i smallest = _mm_minpos_epu16(_mm_xor_si128(m, _mm_set1_epi16(-1)));
  return static_cast<uint16_t>(~_mm_cvtsi128_si32(smallest));
}
#undef BRIGADE_CODES_FUNCTION

#define BRIGADE_LANES_FUNCTION \
  BRIGADE_TARGET_AVX2_LANES __attribute__((always_inline)) inline static

struct Avx2Codes {
  using Lanes = Avx2Lanes;
  using Words = __m256i;
  static constexpr int64_t kBytes = 32;

  BRIGADE_LANES_FUNCTION Words Zero() { return _mm256_setzero_si256(); }
  BRIGADE_LANES_FUNCTION Words Load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  BRIGADE_LANES_FUNCTION Words Larger32(Words largest, Words x) {
    return _mm256_max_epi32(largest, _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff)));
  }
  BRIGADE_LANES_FUNCTION Words Larger16(Words largest, Words x) {
    return _mm256_max_epi16(largest, _mm256_and_si256(x, _mm256_set1_epi16(0x7fff)));
  }

  // The largest of a register's magnitudes.
  BRIGADE_LANES_FUNCTION int32_t Largest32(Words x) { return LargestMagnitude32(x); }
  BRIGADE_LANES_FUNCTION uint16_t Largest16(Words x) { return LargestMagnitude16(x); }

  BRIGADE_LANES_FUNCTION Words Bits(Lanes::Floats x) { return _mm256_castps_si256(x); }
  // To half a line.
  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void Store(uint8_t* to, const Words (&codes)[4]) {
    const Words byte = _mm256_set1_epi32(255);
    // The packing instructions go by halves of a register: quarters change places.
    const Words low =
        _mm256_packus_epi32(_mm256_and_si256(codes[0], byte), _mm256_and_si256(codes[1], byte));
    const Words high =
        _mm256_packus_epi32(_mm256_and_si256(codes[2], byte), _mm256_and_si256(codes[3], byte));
    const Words packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high),
                                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if constexpr (kPastCaches) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), packed);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
    }
  }
  BRIGADE_LANES_FUNCTION Words Join(Words low, Words high) {
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                           _mm256_slli_epi32(high, 4));
  }
  BRIGADE_LANES_FUNCTION Words LoadCodes(const uint8_t* from) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  BRIGADE_LANES_FUNCTION Lanes::Floats ToFloats(Words codes) { return _mm256_cvtepi32_ps(codes); }
  // The values of int4 codes, whose table no register holds.
  BRIGADE_LANES_FUNCTION Lanes::Floats Scale4(Lanes::Floats maximum, Lanes::Floats) {
    return maximum;
  }
  BRIGADE_LANES_FUNCTION Lanes::Floats Low4(Lanes::Floats maximum, Lanes::Floats unit,
                                            Words bytes) {
    const Words codes = _mm256_srai_epi32(_mm256_slli_epi32(bytes, 28), 28);
    return maximum * (ToFloats(codes) * unit);
  }
  BRIGADE_LANES_FUNCTION Lanes::Floats High4(Lanes::Floats maximum, Lanes::Floats unit,
                                             Words bytes) {
    return maximum * (ToFloats(_mm256_srai_epi32(bytes, 4)) * unit);
  }
};
#undef BRIGADE_LANES_FUNCTION

#define BRIGADE_LANES_FUNCTION \
  BRIGADE_TARGET_AVX512_LANES __attribute__((always_inline)) inline static

struct Avx512Codes {
  using Lanes = Avx512Lanes;
  using Words = __m512i;
  static constexpr int64_t kBytes = 64;

  BRIGADE_LANES_FUNCTION Words Zero() { return _mm512_setzero_si512(); }
  BRIGADE_LANES_FUNCTION Words Load(const void* from) { return _mm512_loadu_si512(from); }
  // The larger magnitudes, of floats and of either type of 16 bits.
  BRIGADE_LANES_FUNCTION Words Larger32(Words largest, Words x) {
    return _mm512_maskz_max_epi32(0xffff, largest,
                                  _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff)));
  }
  BRIGADE_LANES_FUNCTION Words Larger16(Words largest, Words x) {
    return _mm512_max_epi16(largest, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
  }

  // The largest of a register's magnitudes.
  BRIGADE_LANES_FUNCTION int32_t Largest32(Words x) {
    return LargestMagnitude32(_mm256_max_epi32(Half<0>(x), Half<1>(x)));
  }
  BRIGADE_LANES_FUNCTION uint16_t Largest16(Words x) {
    return LargestMagnitude16(_mm256_max_epi16(Half<0>(x), Half<1>(x)));
  }

  BRIGADE_LANES_FUNCTION Words Bits(Lanes::Floats x) { return _mm512_castps_si512(x); }
  // Codes in the low bytes of four registers, to a line.
  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void Store(uint8_t* to, const Words (&codes)[4]) {
    Words line = _mm512_castsi128_si512(Narrow(codes[0]));
    line = _mm512_maskz_inserti32x4(0xffff, line, Narrow(codes[1]), 1);
    line = _mm512_maskz_inserti32x4(0xffff, line, Narrow(codes[2]), 2);
    line = _mm512_maskz_inserti32x4(0xffff, line, Narrow(codes[3]), 3);
    if constexpr (kPastCaches) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
    } else {
      _mm512_storeu_si512(to, line);
    }
  }
  // Two int4 codes in one byte.
  BRIGADE_LANES_FUNCTION Words Join(Words low, Words high) {
    return _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(15)),
                           _mm512_maskz_slli_epi32(0xffff, high, 4));
  }
  BRIGADE_LANES_FUNCTION Words LoadCodes(const uint8_t* from) {
    return _mm512_maskz_cvtepi8_epi32(0xffff,
                                      _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  BRIGADE_LANES_FUNCTION Lanes::Floats ToFloats(Words codes) {
    return _mm512_maskz_cvtepi32_ps(0xffff, codes);
  }

  // The values of int4 codes: a register holds a table of all 16, whose index is the low half of a
  // byte.
  BRIGADE_LANES_FUNCTION Lanes::Floats Scale4(Lanes::Floats maximum, Lanes::Floats unit) {
    const Words codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    return maximum * (ToFloats(codes) * unit);
  }
  BRIGADE_LANES_FUNCTION Lanes::Floats Low4(Lanes::Floats table, Lanes::Floats, Words bytes) {
    return _mm512_maskz_permutexvar_ps(0xffff, bytes, table);
  }
  BRIGADE_LANES_FUNCTION Lanes::Floats High4(Lanes::Floats table, Lanes::Floats, Words bytes) {
    return _mm512_maskz_permutexvar_ps(0xffff, _mm512_maskz_srli_epi32(0xffff, bytes, 4), table);
  }
  // Puts the lowest four bits of each of `codes` into the k-th half byte of a word whose half bytes
  // from there on are of no account: with those of 7 come all.
  BRIGADE_LANES_FUNCTION Words JoinHalfByte(Words words, Words codes, int k) {
    // Where a bit of the last operand is set the first one's, else the second one's.
    return _mm512_maskz_ternarylogic_epi32(
        0xffff, words, _mm512_maskz_slli_epi32(0xffff, codes, static_cast<unsigned>(4 * k)),
        _mm512_set1_epi32((1 << 4 * k) - 1), 0xe4);
  }
  // To a line.
  template <bool kPastCaches>
  BRIGADE_LANES_FUNCTION void StoreWords(uint8_t* to, Words words) {
    if constexpr (kPastCaches) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), words);
    } else {
      _mm512_storeu_si512(to, words);
    }
  }

 private:
  template <int kHalf>
  BRIGADE_LANES_FUNCTION __m256i Half(Words x) {
    return _mm512_maskz_extracti64x4_epi64(0xff, x, kHalf);
  }
  BRIGADE_LANES_FUNCTION __m128i Narrow(Words x) { return _mm512_maskz_cvtepi32_epi8(0xffff, x); }
};
#undef BRIGADE_LANES_FUNCTION

// Where the processor has the instruction that rounds to bfloat16 as well: of numbers that are
// normal, since it takes subnormal ones for 0.
#define BRIGADE_TARGET_AVX512_BFLOAT16_LANES \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

struct Avx512BFloat16Lanes : Avx512Lanes {
  template <bool kPastCaches>
  BRIGADE_TARGET_AVX512_BFLOAT16_LANES __attribute__((always_inline)) inline static void Store(
      precision::BFloat16* to, Floats low, Floats high) {
    __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    if constexpr (kPastCaches) {
      BRIGADE_OPAQUE_REGISTER(rounded);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded);
    } else {
      _mm512_storeu_si512(to, rounded);
    }
  }
};
struct Avx512BFloat16Codes : Avx512Codes {
  using Lanes = Avx512BFloat16Lanes;
};

#endif  // __x86_64__

template <typename Lanes>
struct CodesOfLanes {
  using Type = NoLanes;
};
#ifdef __x86_64__
template <>
struct CodesOfLanes<Avx512Lanes> {
  using Type = Avx512Codes;
};
template <>
struct CodesOfLanes<Avx2Lanes> {
  using Type = Avx2Codes;
};
#endif
// The struct for a SIMD target, or NoLanes.
template <SimdTarget kTarget>
using CodesOf = typename CodesOfLanes<LanesOf<kTarget>>::Type;

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_QUANT_LANES_H_
