#include "brigade/kernels/step_control/step_control.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/internal/update_dispatch.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/step_control/step_control_cpu.h"
#include "brigade/kernels/value_range.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/kernels/step_control/step_control_cuda.h"
#endif

namespace brigade::kernels {
namespace {

constexpr char kName[] = "step_control";

absl::Status CheckOptions(const StepControlOptions& options) {
  const LossScaleOptions& scale = options.loss_scale;
  const auto check = [](absl::string_view name, double value, ValueRange range) {
    return CheckInRange(kName, name, -1, value, range);
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const ValueRange from_one = {1.0, infinity, "1 or more"};
  // Far enough inside of float that 1 / (scale * divisor) is neither 0 nor infinity.
  const ValueRange scale_range = {0x1p-60, 0x1p126, "in [2^-60, 2^126]"};
  BRIGADE_RETURN_IF_ERROR(check("initial_scale", scale.initial_scale, scale_range));
  BRIGADE_RETURN_IF_ERROR(check("min_scale", scale.min_scale, scale_range));
  BRIGADE_RETURN_IF_ERROR(
      check("max_scale", scale.max_scale, {scale.min_scale, 0x1p126, "min_scale to 2^126"}));
  if (scale.dynamic) {
    BRIGADE_RETURN_IF_ERROR(check("initial_scale", scale.initial_scale,
                                  {scale.min_scale, scale.max_scale, "min_scale to max_scale"}));
  }
  BRIGADE_RETURN_IF_ERROR(check("window", static_cast<double>(scale.window), from_one));
  BRIGADE_RETURN_IF_ERROR(check("hysteresis", scale.hysteresis, from_one));
  BRIGADE_RETURN_IF_ERROR(
      check("grad_divisor", options.grad_divisor, {0x1p-60, 0x1p60, "in [2^-60, 2^60]"}));
  if (options.norm_divisor != 0.0) {
    BRIGADE_RETURN_IF_ERROR(
        check("norm_divisor", options.norm_divisor, {0x1p-60, 0x1p60, "in [2^-60, 2^60], or 0"}));
  }
  BRIGADE_RETURN_IF_ERROR(check("max_grad_norm", options.max_grad_norm,
                                {0x1p-149, infinity, "positive; infinity for none"}));
  BRIGADE_RETURN_IF_ERROR(check("lr_table_size", static_cast<double>(options.lr_table_size),
                                {1.0, 0x1p40, "in [1, 2^40]"}));
  BRIGADE_RETURN_IF_ERROR(CheckGroupCount(kName, options.betas.size(), kMaxStepGroups));
  for (size_t i = 0; i < options.betas.size(); ++i) {
    BRIGADE_RETURN_IF_ERROR(CheckInRange(kName, "beta1", i, options.betas[i].beta1, kBelowOne));
    BRIGADE_RETURN_IF_ERROR(CheckInRange(kName, "beta2", i, options.betas[i].beta2, kBelowOne));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StepControl(absl::Span<const GradStats> stats, const StepControlOptions& options,
                         StepState* state, GroupStep* group_steps, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckOptions(options));
  if (stats.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": stats has 0 ranks, must have 1 or more"));
  }
  const int64_t groups = static_cast<int64_t>(options.betas.size());
  ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("stats", stats.data(), stats.size()));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("state", state, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("group_steps", group_steps, groups));
  BRIGADE_RETURN_IF_ERROR(
      arguments.AddOperand("lr_table", options.lr_table, groups * options.lr_table_size));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());

  StepParameters parameters =
      MakeStepParameters(options.loss_scale, options.betas.data(), static_cast<int32_t>(groups));
  parameters.stats = stats.data();
  parameters.ranks = static_cast<int64_t>(stats.size());
  parameters.state = state;
  parameters.group_steps = group_steps;
  std::copy(options.failure_flags.begin(), options.failure_flags.end(), parameters.failure_flags);
  parameters.lr_table = options.lr_table;
  parameters.lr_table_size = options.lr_table_size;
  parameters.divisor = options.grad_divisor;
  parameters.norm_divisor = options.norm_divisor;
  parameters.max_grad_norm = options.max_grad_norm;
  parameters.check_overflow = options.check_overflow;

  const device::Operation operation = {kName, arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(
          LaunchStepControl(parameters, static_cast<cudaStream_t>(cuda_stream)), kName);
    });
  }
#endif
  return stream.Enqueue(operation, [parameters](device::ThreadPool&) {
    StepControlCpu(parameters);
    return absl::OkStatus();
  });
}

}  // namespace brigade::kernels
