#include "brigade/kernels/adam/adam.h"

#include "brigade/kernels/adam/adam_cpu.h"
#include "brigade/kernels/internal/enqueue_update.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/adam/adam_cuda.h"
#endif

namespace brigade::kernels {

using precision::DType;

absl::Status CheckAdamOptions(absl::string_view operation, const AdamOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckUpdateTypes(operation, options.grad_dtype, options.copy_dtype));
  BRIGADE_RETURN_IF_ERROR(CheckGroupCount(operation, options.groups.size(), kMaxAdamGroups));
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const AdamGroup& group = options.groups[i];
    BRIGADE_RETURN_IF_ERROR(CheckInRange(operation, "beta1", i, group.beta1, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(CheckInRange(operation, "beta2", i, group.beta2, kUnit));
    BRIGADE_RETURN_IF_ERROR(CheckInRange(operation, "eps", i, group.eps, kPositive));
    BRIGADE_RETURN_IF_ERROR(
        CheckInRange(operation, "weight_decay", i, group.weight_decay, kNonNegative));
  }
  return absl::OkStatus();
}

AdamParameters MakeAdamParameters(const AdamOptions& options) {
  const auto count = static_cast<int64_t>(options.groups.size());
  if (options.one_step.has_value()) {
    return MakeAdamParameters(options.groups.data(), count, options.weight_decay_mode,
                              *options.one_step);
  }
  return MakeAdamParameters(options.groups.data(), count, options.weight_decay_mode, options.state,
                            options.group_steps);
}

absl::Status Adam(absl::Span<const AdamSegment> segments, const AdamOptions& options,
                  device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckAdamOptions("adam", options));
  const DType copy_dtype = options.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      "adam",
      {Updated("param", sizeof(float)),
       Updated("m", sizeof(float)),
       Updated("v", sizeof(float)),
       {"grad", precision::SizeOf(options.grad_dtype), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, options.copy_dtype.has_value()}},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const AdamSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, s.size, {s.param, s.m, s.v, s.grad, s.param_copy}));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex("adam", i, s.group, options.groups.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddStep("adam", options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  return EnqueueUpdate<AdamPolicy>(
      "adam", arguments, segments, options, MakeAdamParameters(options), stream,
      [](auto grad, auto copy) { return AdamRange<decltype(grad), decltype(copy)>; },
      [](auto grad, auto copy, auto... launch) {
        return LaunchAdam<decltype(grad), decltype(copy)>(launch...);
      });
}

}  // namespace brigade::kernels
