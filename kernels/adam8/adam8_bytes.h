#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_BYTES_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_BYTES_H_

// Moments of adam8_math.h to codes and back where a processor has AVX512_VBMI, in the same bits. A
// register of 64 codes is looked up in the 256 numbers' bytes, a byte of all 64 at a time: 21
// instructions for 64 moments, and a product for each 16, instead of 18 for 16. Back, moments are
// parts of their decades as in adam8_lanes.h, and become bytes 64 at a time.

#include <array>
#include <cstddef>
#include <cstdint>

#include "brigade/kernels/adam8/adam8_lanes.h"
#include "brigade/kernels/adam8/adam8_math.h"
#include "brigade/kernels/internal/lanes.h"

#ifdef __x86_64__

namespace brigade::kernels {

// Chooses these loops, where SimdLooksUpBytes (simd.h).
struct Avx512Bytes {};

namespace adam8_internal {

inline constexpr int64_t kRegisterBytes = 64;

// bytes[k][code]: of the number of a code its k-th byte.
template <MomentKind kKind>
struct NumberBytes {
  alignas(64) std::array<std::array<uint8_t, 256>, sizeof(float)> bytes = {};

  constexpr NumberBytes() {
    for (int32_t code = 0; code < 256; ++code) {
      const int32_t place = kKind == MomentKind::kFirst ? code - 127 : code + 1;
      const float number = NumberOf(place < 0 ? -place : place);
      const auto bits = __builtin_bit_cast(uint32_t, place < 0 ? -number : number);
      for (uint32_t k = 0; k < sizeof(float); ++k) {
        bytes[k][static_cast<size_t>(code)] = static_cast<uint8_t>(bits >> (8 * k));
      }
    }
  }

 private:
  // NumberAt for the compiler: the fma's terms are exact in double, and so is their sum.
  static constexpr float NumberOf(int32_t count) {
    if (count < kLowest<kKind>) return 0.0f;
    if (count == kOne<kKind>) return 1.0f;
    constexpr float kSizes[] = {kDecadeSize<0>, kDecadeSize<1>, kDecadeSize<2>, kDecadeSize<3>,
                                kDecadeSize<4>, kDecadeSize<5>, kDecadeSize<6>};
    int decade = 0;
    while (count >= kLowest<kKind> << (decade + 1)) ++decade;
    const double numbers = kLowest<kKind> << decade;
    const double middle = (count - numbers + 0.5) / numbers;
    return static_cast<float>(double{0.9f} * middle + double{0.1f}) * kSizes[decade];
  }
};
template <MomentKind kKind>
inline constexpr NumberBytes<kKind> kNumberBytes;

// The instructions; the unmasked forms start, in g++ 12, from a register that it then warns of.
#define BRIGADE_TARGET_AVX512_BYTES \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")))
#define BRIGADE_BYTES_FUNCTION BRIGADE_TARGET_AVX512_BYTES __attribute__((always_inline)) inline

// Between the order of elements and that of instructions which pack and unpack quarters of a
// register: a transposition of 4 by 4 words of 32 bits, its own inverse.
BRIGADE_BYTES_FUNCTION __m512i SwapQuarters(__m512i words) {
  const __m512i from = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  return _mm512_maskz_permutexvar_epi32(0xffff, from, words);
}

BRIGADE_BYTES_FUNCTION __m512i LookUpBytes(const std::array<uint8_t, 256>& table, __m512i codes,
                                           __mmask64 upper) {
  const uint8_t* const quarter = table.data();
  const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(quarter), codes,
                                               _mm512_load_si512(quarter + kRegisterBytes));
  const __m512i high =
      _mm512_permutex2var_epi8(_mm512_load_si512(quarter + 2 * kRegisterBytes), codes,
                               _mm512_load_si512(quarter + 3 * kRegisterBytes));
  return _mm512_mask_mov_epi8(low, upper, high);
}

// 16 moments to parts of their decades, times the numbers there, cut off: with the signs of the
// moments, and 0 of those that are 0.
template <MomentKind kKind>
BRIGADE_BYTES_FUNCTION __m512i CountsOf(const float* moments, __m512 inverse) {
  constexpr auto& kTables = kRegionTables<kKind>;
  constexpr __mmask16 kAll = 0xffff;
  const __m512 x = _mm512_loadu_ps(moments) * inverse;
  // The larger of both magnitudes.
  const __m512 share = _mm512_maskz_range_ps(kAll, x, _mm512_set1_ps(kLeast), 0b1011);
  const __m512i bits = _mm512_castps_si512(share);
  const __m512i carry = _mm512_maskz_permutexvar_epi32(
      kAll, _mm512_maskz_srli_epi32(kAll, bits, 24), _mm512_load_si512(kTables.carry.data()));
  const __m512i region = _mm512_maskz_srli_epi32(kAll, _mm512_add_epi32(bits, carry), 24);
  const __m512 to_parts =
      _mm512_maskz_permutexvar_ps(kAll, region, _mm512_load_ps(kTables.to_parts.data()));
  const __m512 numbers =
      _mm512_maskz_permutexvar_ps(kAll, region, _mm512_load_ps(kTables.numbers.data()));
  const __m512 parts =
      _mm512_maskz_min_ps(kAll, _mm512_fmadd_ps(share, to_parts, _mm512_set1_ps(kPartsBegin)),
                          _mm512_set1_ps(kPartsEnd));
  const __m512 count = parts * numbers;
  if constexpr (kKind == MomentKind::kSecond) {
    const __mmask16 is_above = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    return _mm512_maskz_cvttps_epi32(is_above, count);
  } else {
    // The magnitude, or the sign's bit of x.
    const __m512i with_sign = _mm512_ternarylogic_epi32(
        _mm512_castps_si512(count), _mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN), 0xf8);
    return _mm512_maskz_cvttps_epi32(kAll, _mm512_castsi512_ps(with_sign));
  }
}

}  // namespace adam8_internal

template <MomentKind kKind>
BRIGADE_TARGET_AVX512_BYTES void DecodeMoments(Avx512Bytes, const uint8_t* codes, float scale,
                                               int64_t size, float* moments) {
  using adam8_internal::LookUpBytes;
  constexpr auto& kBytes = adam8_internal::kNumberBytes<kKind>.bytes;
  constexpr __mmask64 kAll = ~__mmask64{0};
  const __m512 scales = _mm512_set1_ps(scale);
  int64_t i = 0;
  for (; i + adam8_internal::kRegisterBytes <= size; i += adam8_internal::kRegisterBytes) {
    const __m512i own = adam8_internal::SwapQuarters(_mm512_loadu_si512(codes + i));
    const __mmask64 upper = _mm512_movepi8_mask(own);
    const __m512i byte0 = LookUpBytes(kBytes[0], own, upper);
    const __m512i byte1 = LookUpBytes(kBytes[1], own, upper);
    const __m512i byte2 = LookUpBytes(kBytes[2], own, upper);
    const __m512i byte3 = LookUpBytes(kBytes[3], own, upper);
    const __m512i low01 = _mm512_maskz_unpacklo_epi8(kAll, byte0, byte1);
    const __m512i high01 = _mm512_maskz_unpackhi_epi8(kAll, byte0, byte1);
    const __m512i low23 = _mm512_maskz_unpacklo_epi8(kAll, byte2, byte3);
    const __m512i high23 = _mm512_maskz_unpackhi_epi8(kAll, byte2, byte3);
    const __m512i numbers[4] = {_mm512_maskz_unpacklo_epi16(0xffffffff, low01, low23),
                                _mm512_maskz_unpackhi_epi16(0xffffffff, low01, low23),
                                _mm512_maskz_unpacklo_epi16(0xffffffff, high01, high23),
                                _mm512_maskz_unpackhi_epi16(0xffffffff, high01, high23)};
    for (int k = 0; k < 4; ++k) {
      _mm512_storeu_ps(moments + i + 16 * k, _mm512_castsi512_ps(numbers[k]) * scales);
    }
  }
  if (i < size) DecodeMoments<kKind>(Avx512Lanes(), codes + i, scale, size - i, moments + i);
}

template <MomentKind kKind>
BRIGADE_TARGET_AVX512_BYTES void EncodeMoments(Avx512Bytes, const MomentCoder& coder,
                                               const float* moments, int64_t size, uint8_t* codes) {
  using adam8_internal::CountsOf;
  // Blocks of zeros, of tiny numbers, and of what is no number.
  if (coder.up != 1.0f || coder.mask == 0) {
    return EncodeMoments<kKind>(Avx512Lanes(), coder, moments, size, codes);
  }
  constexpr __mmask64 kAll = ~__mmask64{0};
  const __m512 inverse = _mm512_set1_ps(coder.inverse);
  int64_t i = 0;
  for (; i + adam8_internal::kRegisterBytes <= size; i += adam8_internal::kRegisterBytes) {
    const __m512i counts[4] = {
        CountsOf<kKind>(moments + i, inverse), CountsOf<kKind>(moments + i + 16, inverse),
        CountsOf<kKind>(moments + i + 32, inverse), CountsOf<kKind>(moments + i + 48, inverse)};
    const __m512i one = _mm512_set1_epi16(1);
    __m512i packed;
    if constexpr (kKind == MomentKind::kFirst) {
      // From -128 to 127, where there is no -1: what would be below the codes is their first.
      const __m512i low = _mm512_sub_epi16(_mm512_packs_epi32(counts[0], counts[1]), one);
      const __m512i high = _mm512_sub_epi16(_mm512_packs_epi32(counts[2], counts[3]), one);
      packed = _mm512_xor_si512(_mm512_packs_epi16(low, high), _mm512_set1_epi8(INT8_MIN));
    } else {
      const __m512i low =
          _mm512_maskz_subs_epu16(0xffffffff, _mm512_packus_epi32(counts[0], counts[1]), one);
      const __m512i high =
          _mm512_maskz_subs_epu16(0xffffffff, _mm512_packus_epi32(counts[2], counts[3]), one);
      packed = _mm512_maskz_packus_epi16(kAll, low, high);
    }
    _mm512_storeu_si512(codes + i, adam8_internal::SwapQuarters(packed));
  }
  if (i < size) EncodeMoments<kKind>(Avx512Lanes(), coder, moments + i, size - i, codes + i);
}

#undef BRIGADE_BYTES_FUNCTION
#undef BRIGADE_TARGET_AVX512_BYTES

}  // namespace brigade::kernels

#endif  // __x86_64__

#endif  // BRIGADE_KERNELS_ADAM8_ADAM8_BYTES_H_
