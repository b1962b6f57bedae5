// SGD with momentum over a list on the CPU: reads param, momentum and the gradient, writes param, momentum
// and the copy. 16 bytes of state per element, plus gradient and copy; a handful of operations an element,
// so memory decides.

#include "brigade/kernels/sgd/sgd_cpu.h"

#include <type_traits>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/update_types.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

template <typename Grad, typename Copy, typename Variant>
void UpdateRange(const SgdSegment& segment, const SgdCoefficients& coefficients, int64_t begin,
                 int64_t end) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    const SgdCoefficients c = coefficients;
    float* const param = segment.param;
    [[maybe_unused]] float* const momentum = segment.momentum;
    const Grad* const grad = static_cast<const Grad*>(segment.grad);
    [[maybe_unused]] Copy* const copy = static_cast<Copy*>(segment.param_copy);
    SplitAtLine(param, begin, end, [&](int64_t from, int64_t to) BRIGADE_SIMD_BODY {
#pragma GCC ivdep
      for (int64_t i = from; i < to; ++i) {
        float p = param[i];
        float buffer = 0.0f;
        if constexpr (Variant::kMomentum) buffer = momentum[i];
        SgdElement<Variant>(c, static_cast<float>(grad[i]), p, buffer);
        param[i] = p;
        if constexpr (Variant::kMomentum) momentum[i] = buffer;
        if constexpr (!std::is_same_v<Copy, NoCopy>) copy[i] = Copy(p);
      }
    });
  });
}

}  // namespace

template <typename Grad, typename Copy>
void SgdCpu(absl::Span<const PlannedSegment<SgdSegment>> plan, const SgdParameters& parameters,
            device::ThreadPool& pool) {
  if (parameters.state->skip != 0) return;
  ForEachRange(
      plan, kCpuTile, pool, [&](const SgdSegment& segment, int64_t begin, int64_t end, int64_t) {
        const SgdCoefficients c = MakeSgdCoefficients(parameters, segment.group);
        VisitSgdVariant(parameters.decoupled, segment.momentum != nullptr, [&](auto variant) {
          UpdateRange<Grad, Copy, decltype(variant)>(segment, c, begin, end);
        });
      });
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                          \
  template void SgdCpu<Grad, Copy>(absl::Span<const PlannedSegment<SgdSegment>>, \
                                   const SgdParameters&, device::ThreadPool&);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
