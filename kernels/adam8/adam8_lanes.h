#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_LANES_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_LANES_H_

// Moments of adam8_math.h to codes and back with the lanes of an instruction set, in the same bits.
// What is chosen there by comparisons with one decade after the other is looked up here in a
// register, which compilers do not find: a third of the instructions.
//
// Of a code the exponent of its count is that of its decade. Of a moment the exponent of its share
// of the scale, halved, names a region, from x to 4 x, that has at most one of the ends of decades:
// a number that the region says carries what is above that end into the next region, and that says
// the decade.

#include <array>
#include <cstdint>

#include "brigade/kernels/adam8/adam8_math.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {

// Up to a block of codes to moments, and back; for targets without lanes the compiler's vectors.
template <MomentKind kKind>
BRIGADE_INLINE void DecodeMoments(NoLanes, const uint8_t* codes, float scale, int64_t size,
                                  float* moments) {
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < size; ++i) moments[i] = MomentOf<kKind>(codes[i], scale);
}
template <MomentKind kKind>
BRIGADE_INLINE void EncodeMoments(NoLanes, const MomentCoder& coder, const float* moments,
                                  int64_t size, uint8_t* codes) {
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < size; ++i) codes[i] = MomentCode<kKind>(coder, moments[i]);
}

#ifdef __x86_64__

namespace adam8_internal {

// Sixteen registers' lanes at most; fewer lanes look up halves.
inline constexpr int kTableSize = 16;
using MomentTable = std::array<float, kTableSize>;

// The region of kLeast, below which a moment is not looked at.
inline constexpr int32_t kFirstRegion = 52;
constexpr int32_t RegionOf(float x) { return __builtin_bit_cast(int32_t, x) >> 24; }
static_assert(RegionOf(kLeast) == kFirstRegion);

// What is above ends[i] counts from level i + 1 on: 0, then the seven decades, then 1.
template <MomentKind kKind>
constexpr std::array<float, 8> LevelEnds() {
  // Above the float before kZeroEnd is what is not below that; second moments are told from 0.
  constexpr float kZero = kKind == MomentKind::kFirst
                              ? __builtin_bit_cast(float, __builtin_bit_cast(int32_t, kZeroEnd) - 1)
                              : 0.0f;
  return {kZero,
          kDecadeEnd<kKind, 0>,
          kDecadeEnd<kKind, 1>,
          kDecadeEnd<kKind, 2>,
          kDecadeEnd<kKind, 3>,
          kDecadeEnd<kKind, 4>,
          kDecadeEnd<kKind, 5>,
          kOneBegin<kKind>};
}
// The last one, of 1, makes its only part of what is above kOneBegin.
inline constexpr float kLevelToParts[] = {kToParts<0>, kToParts<0>, kToParts<1>,
                                          kToParts<2>, kToParts<3>, kToParts<4>,
                                          kToParts<5>, kToParts<6>, 0.1125f};

// By the last bits of regions 52 to 64: what carries the bits above the region's end into the next
// one, what makes parts of its level, and how many numbers that has. Half a number, which is cut
// off, is none.
template <MomentKind kKind>
struct RegionTables {
  alignas(64) std::array<int32_t, kTableSize> carry = {};
  alignas(64) MomentTable to_parts = {}, numbers = {};

  constexpr RegionTables() {
    constexpr std::array<float, 8> kEnds = LevelEnds<kKind>();
    for (int32_t region = kFirstRegion; region <= 64; ++region) {
      const int32_t at = region % kTableSize;
      int32_t level = 0;
      for (const float each : kEnds) {
        level += RegionOf(each) < region;
        if (RegionOf(each) != region) continue;
        carry[at] = ((region + 1) << 24) - (__builtin_bit_cast(int32_t, each) + 1);
      }
      to_parts[at] = kLevelToParts[level];
      numbers[at] = level == 0 ? 0.5f : static_cast<float>(kLowest<kKind>) * (1 << (level - 1));
    }
  }
};

// By the last three bits of the exponent of a count: the size of its decade, and half of a number
// beside the count's power of two. 0 and 1 are chosen otherwise.
template <MomentKind kKind>
struct CountTables {
  alignas(64) MomentTable size = {}, half = {};

  constexpr CountTables() {
    constexpr float kSizes[] = {kDecadeSize<0>, kDecadeSize<1>, kDecadeSize<2>, kDecadeSize<3>,
                                kDecadeSize<4>, kDecadeSize<5>, kDecadeSize<6>};
    for (int decade = 0; decade < 7; ++decade) {
      const int32_t numbers = kLowest<kKind> << decade;
      const int32_t exponent = __builtin_bit_cast(int32_t, static_cast<float>(numbers)) >> 23;
      for (const int at : {exponent % 8, exponent % 8 + 8}) {
        size[at] = kSizes[decade];
        half[at] = 0.5f / static_cast<float>(numbers);
      }
    }
  }
};

// No two ends are in one region: a decade has the factor 10, a region 4.
template <MomentKind kKind>
constexpr bool HasRegionsOfTheirOwn() {
  constexpr std::array<float, 8> kEnds = LevelEnds<kKind>();
  int32_t before = -1;
  for (const float each : kEnds) {
    const int32_t own = RegionOf(each);
    if (own == before || (own < kFirstRegion && each != 0.0f)) return false;
    before = own;
  }
  return before == 63;
}
static_assert(HasRegionsOfTheirOwn<MomentKind::kFirst>());
static_assert(HasRegionsOfTheirOwn<MomentKind::kSecond>());

template <MomentKind kKind>
inline constexpr RegionTables<kKind> kRegionTables;
template <MomentKind kKind>
inline constexpr CountTables<kKind> kCountTables;

#define BRIGADE_MOMENTS_FUNCTION \
  BRIGADE_TARGET_AVX512_LANES __attribute__((always_inline)) inline static

// The instructions of a target, where those of different targets differ.
struct Avx512Moments {
  static constexpr int64_t kSize = 16;
  using Floats = __m512;
  using Ints = __m512i;
  using Mask = __mmask16;
  struct Table {
    __m512 values;
  };

  template <typename T>
  BRIGADE_MOMENTS_FUNCTION Table Load(const std::array<T, kTableSize>& from) {
    return {_mm512_castsi512_ps(_mm512_load_si512(from.data()))};
  }
  // By the last four bits.
  BRIGADE_MOMENTS_FUNCTION Floats LookUp(const Table& table, Ints index) {
    return _mm512_maskz_permutexvar_ps(kAll, index, table.values);
  }
  BRIGADE_MOMENTS_FUNCTION Ints LoadCodes(const uint8_t* from) {
    return _mm512_maskz_cvtepu8_epi32(kAll,
                                      _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  // Those below 0 as 0.
  BRIGADE_MOMENTS_FUNCTION void StoreCodes(Ints codes, uint8_t* to) {
    const __m512i least = _mm512_maskz_max_epi32(kAll, codes, _mm512_setzero_si512());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_maskz_cvtepi32_epi8(kAll, least));
  }
  BRIGADE_MOMENTS_FUNCTION Floats LoadFloats(const float* from) { return _mm512_loadu_ps(from); }
  BRIGADE_MOMENTS_FUNCTION void StoreFloats(Floats x, float* to) { _mm512_storeu_ps(to, x); }
  BRIGADE_MOMENTS_FUNCTION Floats Fill(float x) { return _mm512_set1_ps(x); }
  BRIGADE_MOMENTS_FUNCTION Ints Fill(int32_t x) { return _mm512_set1_epi32(x); }
  BRIGADE_MOMENTS_FUNCTION Floats AsFloats(Ints x) { return _mm512_castsi512_ps(x); }
  BRIGADE_MOMENTS_FUNCTION Ints AsInts(Floats x) { return _mm512_castps_si512(x); }
  BRIGADE_MOMENTS_FUNCTION Floats ToFloats(Ints x) { return _mm512_maskz_cvtepi32_ps(kAll, x); }
  BRIGADE_MOMENTS_FUNCTION Ints Truncate(Floats x) { return _mm512_maskz_cvttps_epi32(kAll, x); }
  BRIGADE_MOMENTS_FUNCTION Ints Add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints Sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints And(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints Or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints Abs(Ints x) { return _mm512_maskz_abs_epi32(kAll, x); }
  template <int kBits>
  BRIGADE_MOMENTS_FUNCTION Ints ShiftRight(Ints x) {
    return _mm512_maskz_srli_epi32(kAll, x, kBits);
  }
  BRIGADE_MOMENTS_FUNCTION Floats Min(Floats a, Floats b) {
    return _mm512_maskz_min_ps(kAll, a, b);
  }
  BRIGADE_MOMENTS_FUNCTION Floats Max(Floats a, Floats b) {
    return _mm512_maskz_max_ps(kAll, a, b);
  }
  BRIGADE_MOMENTS_FUNCTION Floats Fma(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  BRIGADE_MOMENTS_FUNCTION Mask IsNegative(Ints x) {
    return _mm512_cmplt_epi32_mask(x, _mm512_setzero_si512());
  }
  BRIGADE_MOMENTS_FUNCTION Mask IsEqual(Ints a, Ints b) { return _mm512_cmpeq_epi32_mask(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints Select(Mask mask, Ints where_set, Ints other) {
    return _mm512_mask_mov_epi32(other, mask, where_set);
  }

 private:
  // As in lanes.h.
  static constexpr __mmask16 kAll = 0xffff;
};
#undef BRIGADE_MOMENTS_FUNCTION

#define BRIGADE_TARGET_AVX2_MOMENTS __attribute__((target("avx2,fma,f16c")))
#define BRIGADE_MOMENTS_FUNCTION \
  BRIGADE_TARGET_AVX2_MOMENTS __attribute__((always_inline)) inline static

struct Avx2Moments {
  static constexpr int64_t kSize = 8;
  using Floats = __m256;
  using Ints = __m256i;
  using Mask = __m256i;
  struct Table {
    __m256 low, high;
  };

  template <typename T>
  BRIGADE_MOMENTS_FUNCTION Table Load(const std::array<T, kTableSize>& from) {
    const auto* const bits = reinterpret_cast<const __m256i*>(from.data());
    return {_mm256_castsi256_ps(_mm256_load_si256(bits)),
            _mm256_castsi256_ps(_mm256_load_si256(bits + 1))};
  }
  BRIGADE_MOMENTS_FUNCTION Floats LookUp(const Table& table, Ints index) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, index),
                            _mm256_permutevar8x32_ps(table.high, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
  }
  BRIGADE_MOMENTS_FUNCTION Ints LoadCodes(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  BRIGADE_MOMENTS_FUNCTION void StoreCodes(Ints codes, uint8_t* to) {
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
  }
  BRIGADE_MOMENTS_FUNCTION Floats LoadFloats(const float* from) { return _mm256_loadu_ps(from); }
  BRIGADE_MOMENTS_FUNCTION void StoreFloats(Floats x, float* to) { _mm256_storeu_ps(to, x); }
  BRIGADE_MOMENTS_FUNCTION Floats Fill(float x) { return _mm256_set1_ps(x); }
  BRIGADE_MOMENTS_FUNCTION Ints Fill(int32_t x) { return _mm256_set1_epi32(x); }
  BRIGADE_MOMENTS_FUNCTION Floats AsFloats(Ints x) { return _mm256_castsi256_ps(x); }
  BRIGADE_MOMENTS_FUNCTION Ints AsInts(Floats x) { return _mm256_castps_si256(x); }
  BRIGADE_MOMENTS_FUNCTION Floats ToFloats(Ints x) { return _mm256_cvtepi32_ps(x); }
  BRIGADE_MOMENTS_FUNCTION Ints Truncate(Floats x) { return _mm256_cvttps_epi32(x); }
  BRIGADE_MOMENTS_FUNCTION Ints Add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints Sub(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints And(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints Or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints Abs(Ints x) { return _mm256_abs_epi32(x); }
  template <int kBits>
  BRIGADE_MOMENTS_FUNCTION Ints ShiftRight(Ints x) {
    return _mm256_srli_epi32(x, kBits);
  }
  BRIGADE_MOMENTS_FUNCTION Floats Min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  BRIGADE_MOMENTS_FUNCTION Floats Max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  BRIGADE_MOMENTS_FUNCTION Floats Fma(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  BRIGADE_MOMENTS_FUNCTION Mask IsNegative(Ints x) { return _mm256_srai_epi32(x, 31); }
  BRIGADE_MOMENTS_FUNCTION Mask IsEqual(Ints a, Ints b) { return _mm256_cmpeq_epi32(a, b); }
  BRIGADE_MOMENTS_FUNCTION Ints Select(Mask mask, Ints where_set, Ints other) {
    return _mm256_blendv_epi8(other, where_set, mask);
  }
};
#undef BRIGADE_MOMENTS_FUNCTION

}  // namespace adam8_internal

// A macro, since a template cannot say for which instructions it is compiled. What does not fill a
// register is the compiler's.
#define BRIGADE_MOMENTS_LOOPS(Lanes, Simd, TARGET)                                                 \
  template <MomentKind kKind>                                                                      \
  TARGET void DecodeMoments(Lanes, const uint8_t* codes, float scale, int64_t size,                \
                            float* moments) {                                                      \
    using S = adam8_internal::Simd;                                                                \
    constexpr bool kFirst = kKind == MomentKind::kFirst;                                           \
    constexpr int32_t kOne = adam8_internal::kOne<kKind>;                                          \
    const auto sizes = S::Load(adam8_internal::kCountTables<kKind>.size);                          \
    const auto halves = S::Load(adam8_internal::kCountTables<kKind>.half);                         \
    const auto one = S::Fill(1.0f), scales = S::Fill(scale);                                       \
    int64_t i = 0;                                                                                 \
    for (; i + S::kSize <= size; i += S::kSize) {                                                  \
      const auto place = S::Add(S::LoadCodes(codes + i), S::Fill(kFirst ? -127 : 1));              \
      const auto count = kFirst ? S::Abs(place) : place;                                           \
      const auto bits = S::AsInts(S::ToFloats(count));                                             \
      const auto exponent = S::template ShiftRight<23>(bits);                                      \
      const auto mantissa =                                                                        \
          S::Or(S::And(bits, S::Fill(0x007fffff)), S::Fill(int32_t{0x3f800000}));                  \
      const auto part = S::AsFloats(mantissa) - one;                                               \
      const auto in_decade =                                                                       \
          S::Fma(S::Fill(0.9f), part + S::LookUp(halves, exponent), S::Fill(0.1f));                \
      auto number = S::AsInts(in_decade * S::LookUp(sizes, exponent));                             \
      number = S::Select(S::IsEqual(count, S::Fill(kFirst ? 0 : 1)), S::Fill(0), number);          \
      number = S::Select(S::IsEqual(count, S::Fill(kOne)), S::AsInts(one), number);                \
      if (kFirst) number = S::Or(number, S::And(place, S::Fill(INT32_MIN)));                       \
      S::StoreFloats(S::AsFloats(number) * scales, moments + i);                                   \
    }                                                                                              \
    if (i < size) DecodeMoments<kKind>(NoLanes(), codes + i, scale, size - i, moments + i);        \
  }                                                                                                \
                                                                                                   \
  template <MomentKind kKind, bool kIsTiny>                                                        \
  TARGET __attribute__((always_inline)) inline void EncodeMomentsOf(                               \
      Lanes, const MomentCoder& coder, const float* moments, int64_t size, uint8_t* codes) {       \
    using S = adam8_internal::Simd;                                                                \
    constexpr auto& kTables = adam8_internal::kRegionTables<kKind>;                                \
    const auto carry = S::Load(kTables.carry), to_parts = S::Load(kTables.to_parts);               \
    const auto all_numbers = S::Load(kTables.numbers);                                             \
    const auto mask = S::Fill(coder.mask);                                                         \
    const auto up = S::Fill(coder.up), inverse = S::Fill(coder.inverse);                           \
    int64_t i = 0;                                                                                 \
    for (; i + S::kSize <= size; i += S::kSize) {                                                  \
      const auto bits = S::AsInts(S::LoadFloats(moments + i));                                     \
      auto x = S::AsFloats(S::And(bits, mask));                                                    \
      if (kIsTiny) x = x * up;                                                                     \
      x = x * inverse;                                                                             \
      const auto share = S::Max(x, S::Fill(adam8_internal::kLeast));                               \
      auto region = S::template ShiftRight<24>(S::AsInts(share));                                  \
      region = S::Add(S::AsInts(share), S::AsInts(S::LookUp(carry, region)));                      \
      region = S::template ShiftRight<24>(region);                                                 \
      const auto parts =                                                                           \
          S::Min(S::Fma(share, S::LookUp(to_parts, region), S::Fill(adam8_internal::kPartsBegin)), \
                 S::Fill(adam8_internal::kPartsEnd));                                              \
      auto count = S::Truncate(parts * S::LookUp(all_numbers, region));                            \
      if (kKind == MomentKind::kSecond) {                                                          \
        count = S::Select(S::IsEqual(S::AsInts(x), S::Fill(0)), S::Fill(0), count);                \
        S::StoreCodes(S::Sub(count, S::Fill(1)), codes + i);                                       \
      } else {                                                                                     \
        /* There is no -1: what would be below the codes is their first. */                        \
        const auto zero = S::Fill(127);                                                            \
        S::StoreCodes(S::Select(S::IsNegative(bits), S::Sub(zero, count), S::Add(zero, count)),    \
                      codes + i);                                                                  \
      }                                                                                            \
    }                                                                                              \
    if (i < size) EncodeMoments<kKind>(NoLanes(), coder, moments + i, size - i, codes + i);        \
  }                                                                                                \
  template <MomentKind kKind>                                                                      \
  TARGET void EncodeMoments(Lanes lanes, const MomentCoder& coder, const float* moments,           \
                            int64_t size, uint8_t* codes) {                                        \
    coder.up == 1.0f ? EncodeMomentsOf<kKind, false>(lanes, coder, moments, size, codes)           \
                     : EncodeMomentsOf<kKind, true>(lanes, coder, moments, size, codes);           \
  }

BRIGADE_MOMENTS_LOOPS(Avx512Lanes, Avx512Moments, BRIGADE_TARGET_AVX512_LANES)
BRIGADE_MOMENTS_LOOPS(Avx2Lanes, Avx2Moments, BRIGADE_TARGET_AVX2_MOMENTS)
#undef BRIGADE_MOMENTS_LOOPS

#endif  // __x86_64__

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM8_ADAM8_LANES_H_
