#ifndef BRIGADE_KERNELS_ADAM_ADAM_H_
#define BRIGADE_KERNELS_ADAM_ADAM_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/adam/adam_math.h"
#include "brigade/kernels/adam/adam_parameters.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/weight_decay.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct AdamOptions {
  // float32, float16 or bfloat16.
  precision::DType grad_dtype = precision::DType::kFloat32;
  // float16 or bfloat16; without a value there is no copy.
  std::optional<precision::DType> copy_dtype;
  WeightDecayMode weight_decay_mode = WeightDecayMode::kDecoupled;
  // At most kMaxAdamGroups groups.
  absl::Span<const AdamGroup> groups;
  // Device memory, read when the work runs. Both are written by StepControl.
  // The update reads grad_multiplier and skip.
  const StepState* state = nullptr;
  // [groups.size()].
  const GroupStep* group_steps = nullptr;
  // Instead of both, for at most kMaxOneStepGroups groups: a step whose numbers the host knows.
  std::optional<OneStep> one_step = {};
};

// One step of Adam or AdamW over a list of segments, in one pass over memory:
//   g = grad * grad_multiplier;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   param = (1 - lr weight_decay) param - step_size * m / (sqrt(v) * inv_sqrt_correction + eps)
// With the skip flag set, param, m, v and the copy keep every bit.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address.
// Precision    State and arithmetic fp32, each operation rounded once; the copy rounds to nearest
//              even.
// Traffic      24 bytes per element, plus the gradient's, plus the copy's: 30 with fp32 gradients
//              and a 16-bit copy, 28 with 16-bit gradients and a copy or with fp32 and none.
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
// Source       Kingma and Ba 2015; Loshchilov and Hutter 2019.
absl::Status Adam(absl::Span<const AdamSegment> segments, const AdamOptions& options,
                  device::Stream& stream);

// The options as the raw launcher (adam_cuda.h) takes them; they must be valid. The same without
// Abseil: adam_parameters.h.
AdamParameters MakeAdamParameters(const AdamOptions& options);

// What Adam and Adam8 say of options that are wrong: types, groups and their hyper-parameters.
absl::Status CheckAdamOptions(absl::string_view operation, const AdamOptions& options);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM_ADAM_H_
