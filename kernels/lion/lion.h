#ifndef BRIGADE_KERNELS_LION_LION_H_
#define BRIGADE_KERNELS_LION_LION_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/lion/lion_math.h"
#include "brigade/kernels/lion/lion_parameters.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct LionOptions {
  // float32, float16 or bfloat16.
  precision::DType grad_dtype = precision::DType::kFloat32;
  // float16 or bfloat16; without a value there is no copy.
  std::optional<precision::DType> copy_dtype;
  // At most kMaxLionGroups groups.
  absl::Span<const LionGroup> groups;
  // Device memory, read when the work runs. Both are written by StepControl.
  // The update reads grad_multiplier and skip.
  const StepState* state = nullptr;
  // [groups.size()]; the update reads lr.
  const GroupStep* group_steps = nullptr;
  // Instead of both, for at most kMaxOneStepGroups groups: a step whose numbers the host knows.
  std::optional<OneStep> one_step = {};
};

// One step of Lion over a list of segments, in one pass over memory:
//   g = grad * grad_multiplier
//   param = (1 - lr weight_decay) param - lr * sign(beta1 m + (1 - beta1) g)
//   m = beta2 m + (1 - beta2) g, of the m before
// The sign of 0 is 0, that of NaN is NaN. With the skip flag set, param, m and the copy keep every
// bit.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address.
// Precision    State and arithmetic fp32, each operation rounded once; the copy rounds to nearest
//              even.
// Traffic      16 bytes per element, plus the gradient's, plus the copy's: 20 with fp32 gradients
//              and no copy, 18 with 16-bit gradients.
// Aliasing     None: anything written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads, SIMD target and cut into
//              segments, payloads of NaN aside.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, group out of range, misaligned address, overlap,
//              another device's memory, hyper-parameter out of range or NaN, a dtype that is not
//              supported.
//              When the work finds that state or group_steps were not filled (zeros), never a step
//              that silently does nothing: FailedPrecondition on a CPU stream, with nothing
//              changed; on a GPU the kernel ends with an error of the stream.
// Source       Chen et al. 2023 (arXiv 2302.06675).
absl::Status Lion(absl::Span<const LionSegment> segments, const LionOptions& options,
                  device::Stream& stream);

// The options as the raw launcher (lion_cuda.h) takes them; they must be valid. The same without
// Abseil: lion_parameters.h.
LionParameters MakeLionParameters(const LionOptions& options);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LION_LION_H_
