#ifndef BRIGADE_BENCHMARKS_KERNELS_STEP_MEMORY_H_
#define BRIGADE_BENCHMARKS_KERNELS_STEP_MEMORY_H_

// What the benchmarks of kernels share: types by name, and the inputs of a step in device memory.

#include <type_traits>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/benchmarks/common/bench.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/update_types.h"
#include "brigade/precision/float16.h"

namespace brigade::benchmarks {

template <typename T>
constexpr absl::string_view kTypeName = "none";
template <>
inline constexpr absl::string_view kTypeName<float> = "fp32";
template <>
inline constexpr absl::string_view kTypeName<precision::Half> = "fp16";
template <>
inline constexpr absl::string_view kTypeName<precision::BFloat16> = "bf16";

// sizeof, of what is really there.
template <typename T>
constexpr int64_t kBytesOf = std::is_same_v<T, kernels::NoCopy> ? 0 : sizeof(T);

// An array for a 16-bit parameter copy; null if there is none.
template <typename Copy>
absl::StatusOr<Copy*> CreateCopyArray(Bench& bench, int64_t size) {
  if constexpr (std::is_same_v<Copy, kernels::NoCopy>) {
    return static_cast<Copy*>(nullptr);
  } else {
    return bench.CreateZeros<Copy>(size);
  }
}

// A step that is neither skipped nor the first; gradients are unscaled by 1 / 1024.
inline kernels::StepState OrdinaryState() {
  kernels::StepState state = {};
  state.step = 10;
  state.iteration = 10;
  state.last_overflow = -1;
  state.loss_scale = 1024.0f;
  state.grad_multiplier = 1.0f / 1024.0f;
  state.hysteresis = 2;
  return state;
}

inline kernels::GroupStep OrdinaryGroupStep() {
  return {.lr = 1e-3f, .step_size = 1.5e-3f, .inv_sqrt_correction = 10.0f};
}

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_KERNELS_STEP_MEMORY_H_
