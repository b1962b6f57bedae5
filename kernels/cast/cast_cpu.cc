// Cast over a range on the CPU: reads the source, writes the target, 2 to 4 bytes each an element.
// A large target is streamed past the caches: ordinary stores would read its old contents first,
// and cost 8 bytes an element instead of 6 from fp32 to bf16. That takes lanes; other processors
// have no such stores of vectors, or none that compilers use.

#include "brigade/kernels/cast/cast_cpu.h"

#include <algorithm>

#include "brigade/kernels/cast/cast_elements.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

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
  if (ElementsToLine(target + size) != 0) __builtin_prefetch(target + size - 1, /*rw=*/1);
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
