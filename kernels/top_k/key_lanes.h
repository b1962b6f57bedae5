#ifndef BRIGADE_KERNELS_TOP_K_KEY_LANES_H_
#define BRIGADE_KERNELS_TOP_K_KEY_LANES_H_

// Which elements of an array have a magnitude from some on, by x86-64's registers: compilers count
// them, but do not find that none of 32 has.

#include <algorithm>
#include <cstdint>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/top_k/top_k_math.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// Elements that are looked at together.
inline constexpr int64_t kTopKTogether = 32;

template <typename T, typename Found>
BRIGADE_INLINE void ForEachKeyFrom(const T* array, uint32_t least, int64_t begin, int64_t end,
                                   const Found& found) {
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t key = TopKKey(array[i]);
    if (key >= least) found(i, key);
  }
}

// Calls found(i, key) for the elements of [begin, end) with keys from `least` on, in ascending
// order. Elements are fetched kAhead bytes before they are looked at: each one found is a branch
// that no processor foresees, and by themselves they fetch no further than that. For targets
// without lanes: the compiler's vectors.
template <int64_t kAhead = 0, typename T, typename Found>
BRIGADE_INLINE void ForKeysFrom(NoLanes, const T* array, uint32_t least, int64_t begin, int64_t end,
                                const Found& found) {
  for (int64_t i = begin; i < end; i += kTopKTogether) {
    const int64_t to = std::min(end, i + kTopKTogether);
    int count = to - i == kTopKTogether ? 0 : 1;
    if (count == 0) {
      BRIGADE_SIMD_LOOP
      for (int64_t j = 0; j < kTopKTogether; ++j) count += TopKKey(array[i + j]) >= least ? 1 : 0;
    }
    if (count != 0) ForEachKeyFrom(array, least, i, to, found);
  }
}

#ifdef __x86_64__

// KeysFrom: a bit for each of kTopKTogether elements. Of NaN whose payloads differ all are from the
// key of a NaN on. Keys of bfloat16 are its bits, with zeros below; that of NaN rounds up to its
// least bits.
#define BRIGADE_LANES_FUNCTION BRIGADE_TARGET_AVX512_LANES __attribute__((always_inline)) inline
template <typename T>
BRIGADE_LANES_FUNCTION uint32_t KeysFrom(Avx512Lanes, const T* array, uint32_t least) {
  const __m512i bound = _mm512_set1_epi32(static_cast<int32_t>(least));
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i low = _mm512_castps_si512(Avx512Lanes::Load(array));
  const __m512i high = _mm512_castps_si512(Avx512Lanes::Load(array + Avx512Lanes::kSize));
  const uint32_t first = _mm512_cmpge_epu32_mask(_mm512_and_si512(low, magnitude), bound);
  const uint32_t second = _mm512_cmpge_epu32_mask(_mm512_and_si512(high, magnitude), bound);
  return first | second << 16;
}
BRIGADE_LANES_FUNCTION uint32_t KeysFrom(Avx512Lanes, const precision::BFloat16* array,
                                         uint32_t least) {
  const __m512i bound = _mm512_set1_epi16(static_cast<int16_t>((least + 0xffffu) >> 16));
  const __m512i bits = _mm512_loadu_si512(array);
  return _mm512_cmpge_epu16_mask(_mm512_and_si512(bits, _mm512_set1_epi16(0x7fff)), bound);
}
#undef BRIGADE_LANES_FUNCTION

// There are signed comparisons alone, which magnitudes are small enough for.
#define BRIGADE_LANES_FUNCTION BRIGADE_TARGET_AVX2_LANES __attribute__((always_inline)) inline
template <typename T>
BRIGADE_LANES_FUNCTION __m256i LanesFrom(const T* array, __m256i below) {
  const __m256i bits = _mm256_castps_si256(Avx2Lanes::Load(array));
  return _mm256_cmpgt_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)), below);
}
BRIGADE_LANES_FUNCTION __m256i LanesFrom(const precision::BFloat16* array, __m256i below) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(array));
  return _mm256_cmpgt_epi16(_mm256_and_si256(bits, _mm256_set1_epi16(0x7fff)), below);
}
// The packing instructions go by halves of a register: then its parts change places.
template <typename T>
BRIGADE_LANES_FUNCTION uint32_t KeysFrom(Avx2Lanes, const T* array, uint32_t least) {
  constexpr int64_t kSize = Avx2Lanes::kSize;
  const __m256i below = _mm256_set1_epi32(static_cast<int32_t>(least) - 1);
  const __m256i low = _mm256_packs_epi32(LanesFrom(array, below), LanesFrom(array + kSize, below));
  const __m256i high =
      _mm256_packs_epi32(LanesFrom(array + 2 * kSize, below), LanesFrom(array + 3 * kSize, below));
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                    _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
  return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
}
BRIGADE_LANES_FUNCTION uint32_t KeysFrom(Avx2Lanes, const precision::BFloat16* array,
                                         uint32_t least) {
  const auto bound = static_cast<int16_t>((least + 0xffffu) >> 16);
  const __m256i below = _mm256_set1_epi16(static_cast<int16_t>(bound - 1));
  const __m256i words = _mm256_packs_epi16(LanesFrom(array, below), LanesFrom(array + 16, below));
  const __m256i bytes = _mm256_permute4x64_epi64(words, _MM_SHUFFLE(3, 1, 2, 0));
  return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
}
#undef BRIGADE_LANES_FUNCTION

// One body for both, each compiled for its instructions.
#define BRIGADE_FOR_KEYS_FROM(Lanes, target)                                                       \
  template <int64_t kAhead = 0, typename T, typename Found>                                        \
  target void ForKeysFrom(Lanes lanes, const T* array, uint32_t least, int64_t begin, int64_t end, \
                          const Found& found) {                                                    \
    int64_t i = begin;                                                                             \
    for (; i + kTopKTogether <= end; i += kTopKTogether) {                                         \
      if constexpr (kAhead > 0) {                                                                  \
        const char* const ahead = reinterpret_cast<const char*>(array + i) + kAhead;               \
        constexpr int64_t kBytes = kTopKTogether * static_cast<int64_t>(sizeof(T));                \
        for (int64_t b = 0; b < kBytes; b += kCacheLine) __builtin_prefetch(ahead + b);            \
      }                                                                                            \
      for (uint32_t bits = KeysFrom(lanes, array + i, least); bits != 0; bits &= bits - 1) {       \
        const int64_t at = i + __builtin_ctz(bits);                                                \
        found(at, TopKKey(array[at]));                                                             \
      }                                                                                            \
    }                                                                                              \
    ForEachKeyFrom(array, least, i, end, found);                                                   \
  }
BRIGADE_FOR_KEYS_FROM(Avx512Lanes, BRIGADE_TARGET_AVX512_LANES)
BRIGADE_FOR_KEYS_FROM(Avx2Lanes, BRIGADE_TARGET_AVX2_LANES)
#undef BRIGADE_FOR_KEYS_FROM

#endif  // __x86_64__

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_TOP_K_KEY_LANES_H_
