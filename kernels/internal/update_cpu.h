#ifndef BRIGADE_KERNELS_INTERNAL_UPDATE_CPU_H_
#define BRIGADE_KERNELS_INTERNAL_UPDATE_CPU_H_

// The update of an optimizer over a list on the CPU, for the policies that update_tile.h describes.

#include <cstdint>
#include <type_traits>

#include "absl/types/span.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Updates the elements [begin, end) of a segment. The copy takes ordinary stores: nontemporal ones
// measured the same beside the six in-place streams of Adam.
template <typename Policy, typename Element, typename Grad, typename Copy, typename Coefficients>
void UpdateRange(const typename Policy::Segment& segment, const Coefficients& coefficients,
                 int64_t begin, int64_t end) {
  RunSimd([&]() BRIGADE_SIMD_BODY {
    constexpr int kStates = Element::kStates;
    const Coefficients c = coefficients;
    float* const param = segment.param;
    float* arrays[kStates + 1];  // One more, since no array may be empty.
    for (int k = 0; k < kStates; ++k) arrays[k] = Policy::State(segment, k);
    const Grad* const grad = static_cast<const Grad*>(segment.grad);
    [[maybe_unused]] Copy* const copy = static_cast<Copy*>(segment.param_copy);
    SplitAtLine(param, begin, end, [&](int64_t from, int64_t to) BRIGADE_SIMD_BODY {
#pragma GCC ivdep
      for (int64_t i = from; i < to; ++i) {
        float p = param[i];
        float state[kStates + 1];
        for (int k = 0; k < kStates; ++k) state[k] = arrays[k][i];
        Element::Update(c, static_cast<float>(grad[i]), p, state);
        param[i] = p;
        for (int k = 0; k < kStates; ++k) arrays[k][i] = state[k];
        if constexpr (!std::is_same_v<Copy, NoCopy>) copy[i] = Copy(p);
      }
    });
  });
}

// Runs the update in the calling thread and the pool's. The arguments are valid.
template <typename Policy, typename Grad, typename Copy>
void UpdateCpu(absl::Span<const PlannedSegment<typename Policy::Segment>> plan,
               const typename Policy::Parameters& parameters, device::ThreadPool& pool) {
  if (parameters.state->skip != 0) return;
  const auto range = [&](const auto& segment, int64_t begin, int64_t end, int64_t) {
    const auto c = Policy::MakeCoefficients(parameters, segment);
    Policy::VisitElement(parameters, segment, [&](auto element) {
      UpdateRange<Policy, decltype(element), Grad, Copy>(segment, c, begin, end);
    });
  };
  ForEachRange(plan, kCpuTile, pool, range);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_UPDATE_CPU_H_
