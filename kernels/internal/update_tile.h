#ifndef BRIGADE_KERNELS_INTERNAL_UPDATE_TILE_H_
#define BRIGADE_KERNELS_INTERNAL_UPDATE_TILE_H_

// What one GPU thread does in the update of an optimizer, in plain C++: the CUDA kernels call it,
// and tests run it on the host. update_range.h has the CPU's loop.
//
// Both are templates over the optimizer's policy, which its folder defines beside the formula:
//
//   struct Policy {
//     // Has the members param, grad, param_copy and size.
//     using Segment;
//     // What a call passes beside its segments, and its step as one_step.h reads it.
//     using Parameters;
//     // Segments of one launch of a long list.
//     static constexpr int kMaxSegments;
//     // The largest number of arrays of optimizer state that a segment has.
//     static constexpr int kStates;
//     // The k-th of these arrays, or null.
//     static float* State(const Segment&, int k);
//     // What the step fixes for a group, where its numbers are the host's (one_step.h).
//     static GroupStep OwnStep(const Parameters&, int32_t group);
//     // Whether what a step fixes for a group is more than zeros.
//     static bool IsFilled(const GroupStep&);
//     // The constants of a segment's update. Reads device memory.
//     static Coefficients MakeCoefficients(const Parameters&, const Segment&);
//     // Calls run(Element()) for the kind of update that the segment needs.
//     static void VisitElement(const Parameters&, const Segment&, const Run& run);
//   };
//   struct Element {
//     // The update touches the first kStates arrays of the policy.
//     static constexpr int kStates;
//     // The formula for one element, with its value in each of these arrays.
//     static void Update(const Coefficients&, float gradient, float& param, float* state);
//   };

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/update_types.h"
#include "brigade/precision/host_device.h"

namespace brigade::kernels {

template <typename Policy, int kCapacity = Policy::kMaxSegments>
struct UpdateArguments {
  typename Policy::Parameters parameters;
  SegmentBatch<typename Policy::Segment, kCapacity> batch;
};

// Ends the kernel with an error.
BRIGADE_INLINE void Trap() {
#ifdef __CUDA_ARCH__
  __trap();
#else
  __builtin_trap();
#endif
}

using UpdatePackLayout = PackLayout<GroupSize(sizeof(float))>;

template <typename Policy, typename Grad, typename Copy>
BRIGADE_HOST_DEVICE UpdatePackLayout UpdateLayout(const typename Policy::Segment& s) {
  const auto* const grad = static_cast<const Grad*>(s.grad);
  const auto* const copy = static_cast<const Copy*>(s.param_copy);
  constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  UpdatePackLayout layout(grad);
  if constexpr (kHasCopy && sizeof(Copy) < sizeof(Grad)) layout = UpdatePackLayout(copy);
  layout.Add(s.param);
  for (int k = 0; k < Policy::kStates; ++k) {
    if (Policy::State(s, k) != nullptr) layout.Add(Policy::State(s, k));
  }
  layout.Add(grad);
  if constexpr (kHasCopy) layout.Add(copy);
  return layout;
}

template <typename Policy, typename Grad, typename Copy, int kCapacity>
BRIGADE_INLINE void UpdateThread(const UpdateArguments<Policy, kCapacity>& arguments, int64_t tile,
                                 int thread) {
  static_assert(sizeof(arguments) <= kMaxLaunchArgumentBytes);
  if (SkipsStep(arguments.parameters)) return;
  const int64_t index = arguments.batch.Find(tile);
  const typename Policy::Segment& s = arguments.batch.segments[index];
  // An error of the stream, and of every later call: the host cannot be asked, and doing nothing
  // would pass for a step.
  if (FindStepError<Policy>(arguments.parameters, s.group) != StepError::kNone) Trap();
  const auto c = Policy::MakeCoefficients(arguments.parameters, s);
  const Grad* const grad = static_cast<const Grad*>(s.grad);
  [[maybe_unused]] Copy* const copy = static_cast<Copy*>(s.param_copy);

  Policy::VisitElement(arguments.parameters, s, [&](auto element) {
    using Element = decltype(element);
    constexpr int kStates = Element::kStates;
    const auto update = [&](const auto& chunk) {
      // All loads before the first use.
      const auto g = chunk.Load(grad);
      auto p = chunk.Load(s.param);
      Pack<float> states[kStates + 1];  // One more, since no array may be empty.
      for (int k = 0; k < kStates; ++k) states[k] = chunk.Load(Policy::State(s, k));
      for (int j = 0; j < kPackSize; ++j) {
        float state[kStates + 1];
        for (int k = 0; k < kStates; ++k) state[k] = states[k].values[j];
        Element::Update(c, static_cast<float>(g.values[j]), p.values[j], state);
        for (int k = 0; k < kStates; ++k) states[k].values[j] = state[k];
      }
      chunk.Store(p, s.param);
      for (int k = 0; k < kStates; ++k) chunk.Store(states[k], Policy::State(s, k));
      if constexpr (!std::is_same_v<Copy, NoCopy>) {
        Pack<Copy> rounded;
        for (int j = 0; j < kPackSize; ++j) rounded.values[j] = Copy(p.values[j]);
        chunk.Store(rounded, copy);
      }
    };
    UpdateLayout<Policy, Grad, Copy>(s).ForThread(s.size, tile - arguments.batch.first_tile[index],
                                                  thread, update);
  });
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_UPDATE_TILE_H_
