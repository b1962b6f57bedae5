#ifndef BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_H_
#define BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_H_

// The two calls of a step of Adafactor: the factors of whole tensors, and parameters, which may be
// pieces of tensors that others have made the factors of.

#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/adafactor/adafactor_math.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct AdafactorOptions {
  // float32, float16 or bfloat16.
  precision::DType grad_dtype = precision::DType::kFloat32;
  // Of AdafactorParams: float16 or bfloat16; without a value there is no copy.
  std::optional<precision::DType> copy_dtype;
  // At most kMaxAdafactorGroups groups.
  absl::Span<const AdafactorGroup> groups;
  AdafactorSettings settings = {};
  // Device memory, read when the work runs. Both are written by StepControl.
  // What is read of them: step, grad_multiplier, skip, and lr without relative_step.
  const StepState* state = nullptr;
  // [groups.size()].
  const GroupStep* group_steps = nullptr;
  // Instead of both, for at most kMaxOneStepGroups groups: a step whose numbers the host knows.
  std::optional<OneStep> one_step = {};
};

// Factors and scales of a list of whole tensors. With share = step^decay_rate, of a matrix
//   g = grad * grad_multiplier
//   row_i    = (1 - share) row_i    + share (mean_j g_ij^2 + eps1)
//   column_j = (1 - share) column_j + share (mean_i g_ij^2 + eps1)
//   u_ij = g_ij / sqrt(row_i / mean(row) * column_j)
// of any other tensor v = (1 - share) v + share (g^2 + eps1) and u = g / sqrt(v); of both
//   rate  = lr * (scale_parameter ? max(eps2, RMS(param)) : 1)
//   scale = rate / max(1, RMS(u) / clip_threshold)
// where u is not stored: scales have rate, scale and the roots' inverses. With the skip flag set,
// factors and scales keep every bit.
//
// Shapes       Any number of tensors of any extents, 0 included; any element-aligned address.
// Precision    State fp32, sums double, each operation rounded once.
// Traffic      The gradient twice and the parameter once, of a matrix; 8 bytes an element more, and
//              the gradient once, of any other tensor. Workspaces have a 25th of that.
// Aliasing     None: anything written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target, payloads of
//              NaN aside; the order of sums is in adafactor_math.h.
// Non-finite   NaN, and infinity as NaN, spread over their tensor.
// Errors       Those of Lion (kernels/lion/lion.h), and InvalidArgument naming tensor and extent
//              for one that is negative or larger than any memory.
absl::Status AdafactorFactors(absl::Span<const AdafactorTensor> tensors,
                              const AdafactorOptions& options, device::Stream& stream);

// Parameters of a list of segments, by their tensors' scales:
//   step  = scale * u
//   m     = beta1 m + (1 - beta1) step, and step = m, in a group with beta1
//   param = (1 - rate weight_decay) param - step
// With the skip flag set, all keep every bit.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address. Each lies within its tensor.
// Traffic      8 bytes an element, plus the gradient's and the copy's; 8 more with beta1, and 4 of
//              tensors that are no matrices.
// Determinism  Same bits also for any cut into segments.
//
// In all else like AdafactorFactors; the copy rounds to nearest even.
absl::Status AdafactorParams(absl::Span<const AdafactorSegment> segments,
                             const AdafactorOptions& options, device::Stream& stream);

// The options as the raw launchers (adafactor_cuda.h) take them; they must be valid. The same
// without Abseil: adafactor_parameters.h.
AdafactorParameters MakeAdafactorParameters(const AdafactorOptions& options);

// InvalidArgument naming the setting, with `operation` before it.
absl::Status Validate(const AdafactorSettings& settings, const char* operation);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_H_
