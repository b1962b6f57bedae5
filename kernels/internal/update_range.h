#ifndef BRIGADE_KERNELS_INTERNAL_UPDATE_RANGE_H_
#define BRIGADE_KERNELS_INTERNAL_UPDATE_RANGE_H_

// The update of an optimizer on the CPU, for the policies that update_tile.h describes.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "brigade/kernels/cast/cast_elements.h"
#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Elements of fp16 that are converted at a time, and stay in the first-level cache meanwhile: with
// the processor's instructions, which compilers do not find in the loop.
inline constexpr int64_t kConvertedBlock = 1024;

// The copy takes ordinary stores: nontemporal ones measured the same beside the six in-place
// streams of Adam.
template <typename Policy, typename Element, typename Grad, typename Copy, typename Coefficients>
void UpdateElements(const typename Policy::Segment& segment, const Coefficients& coefficients,
                    int64_t begin, int64_t end) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    constexpr int kStates = Element::kStates;
    constexpr bool kHalfGrad = std::is_same_v<Grad, precision::Half>;
    constexpr bool kHalfCopy = std::is_same_v<Copy, precision::Half>;
    const Coefficients c = coefficients;
    float* const param = segment.param;
    float* arrays[kStates + 1];  // One more, since no array may be empty.
    for (int k = 0; k < kStates; ++k) arrays[k] = Policy::State(segment, k);
    const Grad* const grad = static_cast<const Grad*>(segment.grad);
    [[maybe_unused]] Copy* const copy = static_cast<Copy*>(segment.param_copy);
    [[maybe_unused]] float grads[kHalfGrad ? kConvertedBlock : 1];
    const auto update = [&](int64_t from, int64_t to) BRIGADE_SIMD_BODY {
      if constexpr (kHalfGrad) {
        CastElements<Write::kReplace>(Lanes(), grad + from, grads, to - from, 1.0f);
      }
      BRIGADE_SIMD_LOOP
      for (int64_t i = from; i < to; ++i) {
        float g;
        if constexpr (kHalfGrad) {
          g = grads[i - from];
        } else {
          g = static_cast<float>(grad[i]);
        }
        float p = param[i];
        float state[kStates + 1];
        for (int k = 0; k < kStates; ++k) state[k] = arrays[k][i];
        Element::Update(c, g, p, state);
        param[i] = p;
        for (int k = 0; k < kStates; ++k) arrays[k][i] = state[k];
        if constexpr (!kHalfCopy && !std::is_same_v<Copy, NoCopy>) copy[i] = Copy(p);
      }
      if constexpr (kHalfCopy) {
        CastElements<Write::kReplace>(Lanes(), param + from, copy + from, to - from, 1.0f);
      }
    };
    SplitAtLine(param, begin, end, [&](int64_t from, int64_t to) BRIGADE_SIMD_BODY {
      const int64_t block = kHalfGrad || kHalfCopy ? kConvertedBlock : to - from;
      for (; from < to; from += block) update(from, std::min(to, from + block));
    });
  });
}

// Updates the elements [begin, end) of a segment in the calling thread.
template <typename Policy, typename Grad, typename Copy>
StepError UpdateRange(const typename Policy::Segment& segment,
                      const typename Policy::Parameters& parameters, int64_t begin, int64_t end) {
  const StepError error = FindErrorOfAnyStep<Policy>(parameters, segment.group);
  if (error != StepError::kNone || SkipsStep(parameters)) return error;
  const auto c = Policy::MakeCoefficients(parameters, segment);
  Policy::VisitElement(parameters, segment, [&](auto element) {
    UpdateElements<Policy, decltype(element), Grad, Copy>(segment, c, begin, end);
  });
  return StepError::kNone;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_UPDATE_RANGE_H_
