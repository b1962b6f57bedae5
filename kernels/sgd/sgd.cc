#include "brigade/kernels/sgd/sgd.h"

#include "absl/strings/str_cat.h"
#include "brigade/kernels/internal/enqueue_update.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/sgd/sgd_cpu.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/sgd/sgd_cuda.h"
#endif

namespace brigade::kernels {
namespace {

using precision::DType;

absl::Status CheckOptions(const SgdOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckUpdateTypes("sgd", options.grad_dtype, options.copy_dtype));
  BRIGADE_RETURN_IF_ERROR(CheckGroupCount("sgd", options.groups.size(), kMaxSgdGroups));
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const SgdGroup& group = options.groups[i];
    BRIGADE_RETURN_IF_ERROR(CheckInRange("sgd", "momentum", i, group.momentum, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(CheckInRange("sgd", "dampening", i, group.dampening, kUnit));
    BRIGADE_RETURN_IF_ERROR(
        CheckInRange("sgd", "weight_decay", i, group.weight_decay, kNonNegative));
    if (group.nesterov && (group.momentum == 0.0 || group.dampening != 0.0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sgd: nesterov of group ", i, " needs momentum > 0 and dampening 0, but they are ",
          group.momentum, " and ", group.dampening));
    }
  }
  return absl::OkStatus();
}

// A buffer where the group has no momentum would silently stay behind; none where it has some would
// not do what was asked.
absl::Status CheckMomentum(int64_t index, const SgdSegment& segment, const SgdGroup& group) {
  if (segment.size == 0 || (group.momentum != 0.0) == (segment.momentum != nullptr)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("sgd: momentum of segment ", index,
                   segment.momentum == nullptr ? " is null with " : " is given with ", segment.size,
                   " elements, but group ", segment.group, " has momentum ", group.momentum));
}

}  // namespace

SgdParameters MakeSgdParameters(const SgdOptions& options) {
  const auto count = static_cast<int64_t>(options.groups.size());
  if (options.one_step.has_value()) {
    return MakeSgdParameters(options.groups.data(), count, options.weight_decay_mode,
                             *options.one_step);
  }
  return MakeSgdParameters(options.groups.data(), count, options.weight_decay_mode, options.state,
                           options.group_steps);
}

absl::Status Sgd(absl::Span<const SgdSegment> segments, const SgdOptions& options,
                 device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckOptions(options));
  const DType copy_dtype = options.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      "sgd",
      {Updated("param", sizeof(float)),
       {"grad", precision::SizeOf(options.grad_dtype), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, options.copy_dtype.has_value()},
       Updated("momentum", sizeof(float))},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const SgdSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex("sgd", i, s.group, options.groups.size()));
    BRIGADE_RETURN_IF_ERROR(CheckMomentum(i, s, options.groups[s.group]));
    const void* const arrays[] = {s.param, s.grad, s.param_copy, s.momentum};
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(i, s.size, absl::MakeSpan(arrays, s.momentum == nullptr ? 3 : 4)));
  }
  BRIGADE_RETURN_IF_ERROR(AddStep("sgd", options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  return EnqueueUpdate<SgdPolicy>(
      "sgd", arguments, segments, options, MakeSgdParameters(options), stream,
      [](auto grad, auto copy) { return SgdRange<decltype(grad), decltype(copy)>; },
      [](auto grad, auto copy, auto... launch) {
        return LaunchSgd<decltype(grad), decltype(copy)>(launch...);
      });
}

}  // namespace brigade::kernels
