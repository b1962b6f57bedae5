#ifndef BRIGADE_KERNELS_INTERNAL_UPDATE_RANGE_H_
#define BRIGADE_KERNELS_INTERNAL_UPDATE_RANGE_H_

// The update of an optimizer on the CPU, for the policies that update_tile.h describes.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// The copy takes ordinary stores: nontemporal ones measured the same beside the six in-place
// streams of Adam.
template <typename Policy, typename Element, typename Grad, typename Copy, typename Coefficients>
void UpdateElements(const typename Policy::Segment& segment, const Coefficients& coefficients,
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
      BRIGADE_SIMD_LOOP
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

// Updates the elements [begin, end) of a segment in the calling thread.
template <typename Policy, typename Grad, typename Copy>
StepError UpdateRange(const typename Policy::Segment& segment,
                      const typename Policy::Parameters& parameters, int64_t begin, int64_t end) {
  if (!NamesStep(parameters)) return StepError::kNoStep;
  if (SkipsStep(parameters)) return StepError::kNone;
  const StepError error = FindStepError<Policy>(parameters, segment.group);
  if (error != StepError::kNone) return error;
  const auto c = Policy::MakeCoefficients(parameters, segment);
  Policy::VisitElement(parameters, segment, [&](auto element) {
    UpdateElements<Policy, decltype(element), Grad, Copy>(segment, c, begin, end);
  });
  return StepError::kNone;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_UPDATE_RANGE_H_
