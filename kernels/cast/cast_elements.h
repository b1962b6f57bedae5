#ifndef BRIGADE_KERNELS_CAST_CAST_ELEMENTS_H_
#define BRIGADE_KERNELS_CAST_CAST_ELEMENTS_H_

// Elements of one type to another, with the lanes of an instruction set: the loop of a cast, and
// what loops over fp16 convert a block with that they keep in the first-level cache.

#include <cstdint>
#include <cstring>

#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {

// What becomes of the target's old contents. Past the caches, the target begins at a line.
enum class Write { kReplace, kReplacePastCaches, kAdd };

// CastElements(lanes, ...) for targets without lanes: the compiler's vectors.
template <Write kWrite, typename Source, typename Target>
BRIGADE_INLINE void CastElements(NoLanes, const Source* source, Target* target, int64_t size,
                                 float scale) {
  BRIGADE_SIMD_LOOP
  for (int64_t i = 0; i < size; ++i) {
    Target before = {};
    if constexpr (kWrite == Write::kAdd) before = target[i];
    target[i] = CastElement<kWrite == Write::kAdd>(source[i], before, scale);
  }
}

#ifdef __x86_64__
// Whether an ascending loop would load from where it has just stored, but for a multiple of 4096
// bytes: processors compare the last 12 bits of addresses, and such a load waits for the store.
inline bool LoadsFollowStores(const void* source, const void* target) {
  constexpr uintptr_t kCompared = 4096, kPending = 512;
  const uintptr_t behind =
      (reinterpret_cast<uintptr_t>(target) - reinterpret_cast<uintptr_t>(source)) % kCompared;
  return behind != 0 && behind < kPending;
}

// How many steps CastAhead loads before it stores: at least 512 bytes.
inline constexpr int kCastsAhead = 8;

// With lanes: two registers at a time, and what is left over in a buffer that fills two. A macro,
// since a template cannot say for which instructions it is compiled.
#define BRIGADE_CAST_ELEMENTS(Lanes, TARGET)                                                      \
  template <Write kWrite, typename Source, typename Target>                                       \
  TARGET __attribute__((always_inline)) inline void CastTwo(                                      \
      Lanes, const Source* source, Target* target, const typename Lanes::Floats& factor) {        \
    typename Lanes::Floats low = Lanes::Load(source) * factor;                                    \
    typename Lanes::Floats high = Lanes::Load(source + Lanes::kSize) * factor;                    \
    if constexpr (kWrite == Write::kAdd) {                                                        \
      low = Lanes::Load(target) + low;                                                            \
      high = Lanes::Load(target + Lanes::kSize) + high;                                           \
    }                                                                                             \
    Lanes::template Store<kWrite == Write::kReplacePastCaches>(target, low, high);                \
  }                                                                                               \
                                                                                                  \
  /* Past the caches where LoadsFollowStores, 19 to 36 GB/s without on a Zen 4 and 44 with it. */ \
  /* Returns how many elements it has cast, of the first ones. */                                 \
  template <typename Source, typename Target>                                                     \
  TARGET int64_t CastAhead(Lanes, const Source* source, Target* target, int64_t size,             \
                           const typename Lanes::Floats& factor) {                                \
    constexpr int64_t kTwo = 2 * Lanes::kSize, kSteps = kCastsAhead * kTwo;                       \
    typename Lanes::Floats low[kCastsAhead], high[kCastsAhead];                                   \
    const auto load = [&](int64_t i, int k) TARGET {                                              \
      low[k] = Lanes::Load(source + i) * factor;                                                  \
      high[k] = Lanes::Load(source + i + Lanes::kSize) * factor;                                  \
    };                                                                                            \
    int64_t i = 0;                                                                                \
    if (size >= kSteps) {                                                                         \
      for (int k = 0; k < kCastsAhead; ++k) load(k* kTwo, k);                                     \
    }                                                                                             \
    for (; i + 2 * kSteps <= size; i += kSteps) {                                                 \
      for (int k = 0; k < kCastsAhead; ++k) {                                                     \
        const typename Lanes::Floats before[] = {low[k], high[k]};                                \
        load(i + kSteps + k * kTwo, k);                                                           \
        Lanes::template Store<true>(target + i + k * kTwo, before[0], before[1]);                 \
      }                                                                                           \
    }                                                                                             \
    return i;                                                                                     \
  }                                                                                               \
                                                                                                  \
  template <Write kWrite, typename Source, typename Target>                                       \
  TARGET void CastElements(Lanes lanes, const Source* source, Target* target, int64_t size,       \
                           float scale) {                                                         \
    constexpr int64_t kTwo = 2 * Lanes::kSize;                                                    \
    const typename Lanes::Floats factor = Lanes::Fill(scale);                                     \
    int64_t i = 0;                                                                                \
    if constexpr (kWrite == Write::kReplacePastCaches && sizeof(Source) == sizeof(Target)) {      \
      if (LoadsFollowStores(source, target)) {                                                    \
        i = CastAhead(lanes, source, target, size, factor);                                       \
      }                                                                                           \
    }                                                                                             \
    for (; i + kTwo <= size; i += kTwo) CastTwo<kWrite>(lanes, source + i, target + i, factor);   \
    if (i == size) return;                                                                        \
    constexpr Write kRest = kWrite == Write::kAdd ? Write::kAdd : Write::kReplace;                \
    Source from[kTwo] = {};                                                                       \
    Target to[kTwo] = {};                                                                         \
    std::memcpy(from, source + i, (size - i) * sizeof(Source));                                   \
    if constexpr (kRest == Write::kAdd) std::memcpy(to, target + i, (size - i) * sizeof(Target)); \
    CastTwo<kRest>(lanes, from, to, factor);                                                      \
    std::memcpy(target + i, to, (size - i) * sizeof(Target));                                     \
  }
BRIGADE_CAST_ELEMENTS(Avx512Lanes, BRIGADE_TARGET_AVX512_LANES)
BRIGADE_CAST_ELEMENTS(Avx2Lanes, BRIGADE_TARGET_AVX2_LANES)
#undef BRIGADE_CAST_ELEMENTS
#endif

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_ELEMENTS_H_
