#include "brigade/kernels/lion/lion.h"

#include "brigade/kernels/internal/enqueue_update.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/lion/lion_cpu.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/kernels/lion/lion_cuda.h"
#endif

namespace brigade::kernels {
namespace {

using precision::DType;

absl::Status CheckOptions(const LionOptions& options) {
  BRIGADE_RETURN_IF_ERROR(CheckUpdateTypes("lion", options.grad_dtype, options.copy_dtype));
  BRIGADE_RETURN_IF_ERROR(CheckGroupCount("lion", options.groups.size(), kMaxLionGroups));
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const LionGroup& group = options.groups[i];
    BRIGADE_RETURN_IF_ERROR(CheckInRange("lion", "beta1", i, group.beta1, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(CheckInRange("lion", "beta2", i, group.beta2, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(
        CheckInRange("lion", "weight_decay", i, group.weight_decay, kNonNegative));
  }
  return absl::OkStatus();
}

}  // namespace

LionParameters MakeLionParameters(const LionOptions& options) {
  const auto count = static_cast<int64_t>(options.groups.size());
  if (options.one_step.has_value()) {
    return MakeLionParameters(options.groups.data(), count, *options.one_step);
  }
  return MakeLionParameters(options.groups.data(), count, options.state, options.group_steps);
}

absl::Status Lion(absl::Span<const LionSegment> segments, const LionOptions& options,
                  device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckOptions(options));
  const DType copy_dtype = options.copy_dtype.value_or(DType::kFloat16);
  ListArguments arguments(
      "lion",
      {Updated("param", sizeof(float)),
       Updated("m", sizeof(float)),
       {"grad", precision::SizeOf(options.grad_dtype), false},
       {"param_copy", precision::SizeOf(copy_dtype), true, options.copy_dtype.has_value()}},
      stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const LionSegment& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(arguments.Add(i, s.size, {s.param, s.m, s.grad, s.param_copy}));
    BRIGADE_RETURN_IF_ERROR(CheckGroupIndex("lion", i, s.group, options.groups.size()));
  }
  BRIGADE_RETURN_IF_ERROR(AddStep("lion", options.state, options.group_steps, options.one_step,
                                  options.groups.size(), arguments));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  return EnqueueUpdate<LionPolicy>(
      "lion", arguments, segments, options, MakeLionParameters(options), stream,
      [](auto grad, auto copy) { return LionRange<decltype(grad), decltype(copy)>; },
      [](auto grad, auto copy, auto... launch) {
        return LaunchLion<decltype(grad), decltype(copy)>(launch...);
      });
}

}  // namespace brigade::kernels
