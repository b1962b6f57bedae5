#ifndef BRIGADE_KERNELS_SGD_SGD_H_
#define BRIGADE_KERNELS_SGD_SGD_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/sgd/sgd_math.h"
#include "brigade/kernels/sgd/sgd_parameters.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/weight_decay.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct SgdOptions {
  // float32, float16 or bfloat16.
  precision::DType grad_dtype = precision::DType::kFloat32;
  // float16 or bfloat16; without a value there is no copy.
  std::optional<precision::DType> copy_dtype;
  WeightDecayMode weight_decay_mode = WeightDecayMode::kCoupled;
  // At most kMaxSgdGroups groups.
  absl::Span<const SgdGroup> groups;
  // Device memory, read when the work runs. Both are written by StepControl.
  // The update reads grad_multiplier, skip and step.
  const StepState* state = nullptr;
  // [groups.size()]; the update reads lr.
  const GroupStep* group_steps = nullptr;
  // Instead of both, for at most kMaxOneStepGroups groups: a step whose numbers the host knows.
  std::optional<OneStep> one_step = {};
};

// One step of SGD with momentum over a list of segments, in one pass over memory:
//   g = grad * grad_multiplier (+ weight_decay * param, coupled)
//   momentum = mu * momentum + (1 - dampening) * g, undampened in the first step
//   param = (1 - lr weight_decay, decoupled) param - lr * (nesterov ? g + mu * momentum : momentum)
// With the skip flag set, param, momentum and the copy keep every bit.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address.
// Precision    State and arithmetic fp32, each operation rounded once; the copy rounds to nearest
//              even.
// Traffic      16 bytes per element (8 without momentum), plus the gradient's, plus the copy's: 20
//              with fp32 gradients and no copy, 18 with 16-bit gradients.
// Aliasing     None: anything written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads, SIMD target and cut into
//              segments, payloads of NaN aside.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, group out of range, misaligned address, overlap,
//              another device's memory, hyper-parameter out of range or NaN, Nesterov without
//              momentum or with dampening, a dtype that is not supported.
//              When the work finds that state or group_steps were not filled (zeros), never a step
//              that silently does nothing: FailedPrecondition on a CPU stream, with nothing
//              changed; on a GPU the kernel ends with an error of the stream.
// Source       Sutskever et al. 2013.
absl::Status Sgd(absl::Span<const SgdSegment> segments, const SgdOptions& options,
                 device::Stream& stream);

// The options as the raw launcher (sgd_cuda.h) takes them; they must be valid. The same without
// Abseil: sgd_parameters.h.
SgdParameters MakeSgdParameters(const SgdOptions& options);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SGD_SGD_H_
