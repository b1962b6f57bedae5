// Cast over a range on the CPU: reads the source, writes the target, 2 to 4 bytes each an element.
// A large target is streamed past the caches: ordinary stores would read its old contents first,
// and cost 8 bytes an element instead of 6 from fp32 to bf16. That takes lanes; other processors
// have no such stores of vectors, or none that compilers use.

#include "brigade/kernels/cast/cast_cpu.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

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
  template <Write kWrite, typename Source, typename Target>                                       \
  TARGET void CastElements(Lanes lanes, const Source* source, Target* target, int64_t size,       \
                           float scale) {                                                         \
    constexpr int64_t kTwo = 2 * Lanes::kSize;                                                    \
    const typename Lanes::Floats factor = Lanes::Fill(scale);                                     \
    int64_t i = 0;                                                                                \
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

template <Write kWrite, typename Source, typename Target>
void CastAll(const Source* source, Target* target, int64_t size, float scale) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    SplitAtLine(target, 0, size, [&](int64_t from, int64_t to) BRIGADE_SIMD_BODY {
      using Lanes = LanesOf<decltype(simd)::kValue>;
      CastElements<kWrite>(Lanes(), source + from, target + from, to - from, scale);
    });
  });
}

}  // namespace

template <typename Source, typename Target>
void CastRange(const CastSegment& segment, const float* scale_pointer, bool accumulate,
               bool past_caches, int64_t begin, int64_t end) {
  const float scale = scale_pointer == nullptr ? 1.0f : *scale_pointer;
  const Source* const source = static_cast<const Source*>(segment.source) + begin;
  Target* const target = static_cast<Target*>(segment.target) + begin;
  const int64_t size = end - begin;
  if (accumulate) return CastAll<Write::kAdd>(source, target, size, scale);
  if (!past_caches) return CastAll<Write::kReplace>(source, target, size, scale);
  // In two, so that all stores but few are of whole lines. The last one of a segment is not: unless
  // its line has come in time, all stores wait for it, two fetches of a line for a small segment.
  __builtin_prefetch(target + size, /*rw=*/1);
  const int64_t head = std::min(size, ElementsToLine(target));
  CastAll<Write::kReplace>(source, target, head, scale);
  CastAll<Write::kReplacePastCaches>(source + head, target + head, size - head, scale);
}

#define BRIGADE_INSTANTIATE(Source, Target)                                                      \
  template void CastRange<Source, Target>(const CastSegment&, const float*, bool, bool, int64_t, \
                                          int64_t);
BRIGADE_FOR_EACH_CAST_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
