#ifndef BRIGADE_KERNELS_LAMB_LAMB_H_
#define BRIGADE_KERNELS_LAMB_LAMB_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/lamb/lamb_math.h"
#include "brigade/kernels/lamb/lamb_parameters.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct LambOptions {
  // float32, float16 or bfloat16.
  precision::DType grad_dtype = precision::DType::kFloat32;
  // float16 or bfloat16; without a value there is no copy.
  std::optional<precision::DType> copy_dtype;
  // At most kMaxLambGroups groups.
  absl::Span<const LambGroup> groups;
  // Device memory, read when the work runs. Both are written by StepControl.
  // The update reads grad_multiplier and skip.
  const StepState* state = nullptr;
  // [groups.size()].
  const GroupStep* group_steps = nullptr;
  // Instead of both, for at most kMaxOneStepGroups groups: a step whose numbers the host knows.
  std::optional<OneStep> one_step = {};
};

// InvalidArgument naming the option, its group and its value, behind `name`; of all but the step.
absl::Status Validate(const LambOptions& options, const char* name);

// How many doubles of device memory Lamb needs to work in for this list: two for each tile of 8192
// elements of each tensor.
int64_t LambWorkspaceSize(absl::Span<const LambSegment> segments);

// One step of LAMB over a list of tensors, in two passes over memory:
//   g = grad * grad_multiplier;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   update = m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay * param
//   trust = norm2(param) / norm2(update) of the tensor, from min_trust to max_trust; 1 if one is 0
//   param = param - lr * trust * update
// With the skip flag set, param, m, v and the copy keep every bit.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address. A segment is a whole tensor: a part of one has another trust ratio.
// Precision    State and arithmetic fp32, each operation rounded once; norms are double, in the
//              order of lamb_math.h; the copy rounds to nearest even.
// Traffic      40 bytes per element, plus the gradient's, plus the copy's: 46 with fp32 gradients
//              and a 16-bit copy.
// Aliasing     None: anything written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target, payloads of
//              NaN aside. What workspace holds afterwards differs between devices.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative size, group out of range, misaligned address, overlap,
//              another device's memory, hyper-parameter out of range or NaN, min_trust above
//              max_trust, workspace too small, a dtype that is not supported.
//              When the work finds that state or group_steps were not filled (zeros), never a step
//              that silently does nothing: FailedPrecondition on a CPU stream, with nothing
//              changed; on a GPU the kernel ends with an error of the stream.
// Source       You et al. 2020 (arXiv 1904.00962).
absl::Status Lamb(absl::Span<const LambSegment> segments, const LambOptions& options,
                  absl::Span<double> workspace, device::Stream& stream);

// The passes of a step apart, for tensors of which each of several ranks has a part. In this order,
// each behind the one before it: LambMoments of a rank's pieces; the ranks exchange their sums, so
// that each has those of all tiles of its tensors; LambTrusts; LambParams. The bits are those of
// Lamb on whole tensors, however these are cut.
//
// Pieces       A segment is a piece of one tensor that begins at a multiple of kLambTile elements
//              of it, and ends at one or with the tensor. Zeros behind a tensor may belong to its
//              last piece: they stay zero and change no sum.
// Workspaces   sums: two doubles for each tile of the list, in its order (LambWorkspaceSize).
//              LambTensor says where those of a tensor lie, `sums` are then those of all ranks.
//              trusts: one for each tensor; LambSegment::trust points to it.
//
// All else is as for Lamb: in a step that is skipped nothing is written.
absl::Status LambMoments(absl::Span<const LambSegment> segments, const LambOptions& options,
                         absl::Span<double> sums, device::Stream& stream);
absl::Status LambTrusts(absl::Span<const LambTensor> tensors, const LambOptions& options,
                        absl::Span<const double> sums, absl::Span<float> trusts,
                        device::Stream& stream);
absl::Status LambParams(absl::Span<const LambSegment> segments, const LambOptions& options,
                        absl::Span<const float> trusts, device::Stream& stream);

// The options as the raw launcher (lamb_cuda.h) takes them; they must be valid. The same without
// Abseil: lamb_parameters.h.
LambParameters MakeLambParameters(const LambOptions& options);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LAMB_LAMB_H_
