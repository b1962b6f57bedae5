// AdamW over a list on the CPU: reads param, m, v and the gradient, writes param, m, v and the copy.
// 24 bytes of state per element, plus gradient and copy: at the memory's limit the arithmetic (one
// division and one root) hides behind the loads even without AVX-512.

#include "brigade/kernels/adam/adam_cpu.h"

#include <type_traits>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/update_types.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// Ordinary stores for the copy: streaming them measured the same beside six in-place streams.
template <typename Grad, typename Copy, bool kL2>
void UpdateRange(const AdamSegment& segment, const AdamCoefficients& coefficients, int64_t begin,
                 int64_t end) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    const AdamCoefficients c = coefficients;
    float* const param = segment.param;
    float* const m = segment.m;
    float* const v = segment.v;
    const Grad* const grad = static_cast<const Grad*>(segment.grad);
    [[maybe_unused]] Copy* const copy = static_cast<Copy*>(segment.param_copy);
    SplitAtLine(param, begin, end, [&](int64_t from, int64_t to) BRIGADE_SIMD_BODY {
#pragma GCC ivdep
      for (int64_t i = from; i < to; ++i) {
        float p = param[i], m_i = m[i], v_i = v[i];
        AdamElement<kL2>(c, static_cast<float>(grad[i]), p, m_i, v_i);
        param[i] = p;
        m[i] = m_i;
        v[i] = v_i;
        if constexpr (!std::is_same_v<Copy, NoCopy>) copy[i] = Copy(p);
      }
    });
  });
}

}  // namespace

template <typename Grad, typename Copy>
void AdamCpu(absl::Span<const PlannedSegment<AdamSegment>> plan, const AdamParameters& parameters,
             device::ThreadPool& pool) {
  if (parameters.state->skip != 0) return;
  ForEachRange(plan, kCpuTile, pool,
               [&](const AdamSegment& segment, int64_t begin, int64_t end, int64_t) {
                 const AdamCoefficients c = MakeAdamCoefficients(parameters, segment.group);
                 if (parameters.decoupled) {
                   UpdateRange<Grad, Copy, false>(segment, c, begin, end);
                 } else {
                   UpdateRange<Grad, Copy, true>(segment, c, begin, end);
                 }
               });
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                            \
  template void AdamCpu<Grad, Copy>(absl::Span<const PlannedSegment<AdamSegment>>, \
                                    const AdamParameters&, device::ThreadPool&);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
