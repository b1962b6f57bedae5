// Cast over a range on the CPU: reads the source, writes the target, 2 to 4 bytes each an element.
// A large target is streamed past the caches: ordinary stores would read its old contents first,
// and cost 8 bytes an element instead of 6 from fp32 to bf16. That takes lanes; other processors
// have no such stores of vectors, or none that compilers use.

#include "brigade/kernels/cast/cast_cpu.h"

#include <algorithm>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

enum class Write { kReplace, kReplacePastCaches, kAdd };

// CastGroups(lanes, ...) casts whole groups of elements in registers and returns how many elements
// it has cast. Where there are no lanes for a target, the compiler's vectors do all of them.
template <Write kWrite, typename Source, typename Target>
BRIGADE_INLINE int64_t CastGroups(NoLanes, const Source*, Target*, int64_t, float) {
  return 0;
}

#ifdef __x86_64__
// A macro, since a template cannot say for which instructions it is compiled.
#define BRIGADE_CAST_GROUPS(Lanes, TARGET)                                               \
  template <Write kWrite, typename Source, typename Target>                              \
  TARGET int64_t CastGroups(Lanes, const Source* source, Target* target, int64_t size,   \
                            float scale) {                                               \
    constexpr int64_t kSize = Lanes::kSize;                                              \
    const typename Lanes::Floats factor = Lanes::Fill(scale);                            \
    int64_t i = 0;                                                                       \
    for (; i + 2 * kSize <= size; i += 2 * kSize) {                                      \
      typename Lanes::Floats low = Lanes::Load(source + i) * factor;                     \
      typename Lanes::Floats high = Lanes::Load(source + i + kSize) * factor;            \
      if constexpr (kWrite == Write::kAdd) {                                             \
        low = Lanes::Load(target + i) + low;                                             \
        high = Lanes::Load(target + i + kSize) + high;                                   \
      }                                                                                  \
      Lanes::template Store<kWrite == Write::kReplacePastCaches>(target + i, low, high); \
    }                                                                                    \
    return i;                                                                            \
  }
BRIGADE_CAST_GROUPS(Avx512Lanes, BRIGADE_TARGET_AVX512_LANES)
BRIGADE_CAST_GROUPS(Avx2Lanes, BRIGADE_TARGET_AVX2_LANES)
#undef BRIGADE_CAST_GROUPS
#endif

template <Write kWrite, typename Source, typename Target>
void CastElements(const Source* source, Target* target, int64_t size, float scale) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    SplitAtLine(target, 0, size, [&](int64_t from, int64_t to) BRIGADE_SIMD_BODY {
      from += CastGroups<kWrite>(Lanes(), source + from, target + from, to - from, scale);
      BRIGADE_SIMD_LOOP
      for (int64_t i = from; i < to; ++i) {
        Target before = {};
        if constexpr (kWrite == Write::kAdd) before = target[i];
        target[i] = CastElement<kWrite == Write::kAdd>(source[i], before, scale);
      }
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
  if (accumulate) return CastElements<Write::kAdd>(source, target, size, scale);
  if (!past_caches) return CastElements<Write::kReplace>(source, target, size, scale);
  // In two, so that all stores but few are of whole lines.
  const int64_t head = std::min(size, ElementsToLine(target));
  CastElements<Write::kReplace>(source, target, head, scale);
  CastElements<Write::kReplacePastCaches>(source + head, target + head, size - head, scale);
}

#define BRIGADE_INSTANTIATE(Source, Target)                                                      \
  template void CastRange<Source, Target>(const CastSegment&, const float*, bool, bool, int64_t, \
                                          int64_t);
BRIGADE_FOR_EACH_CAST_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
