#include "brigade/kernels/internal/update_dispatch.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

using precision::DType;

absl::Status CheckUpdateTypes(absl::string_view operation, DType grad_dtype,
                              std::optional<DType> copy_dtype) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(operation, "grad", grad_dtype));
  if (copy_dtype.has_value() && *copy_dtype != DType::kFloat16 && *copy_dtype != DType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": dtype of param_copy is ",
                                                   precision::ShortName(*copy_dtype),
                                                   ", must be fp16 or bf16"));
  }
  return absl::OkStatus();
}

absl::Status CheckGroupCount(absl::string_view operation, size_t count, size_t limit) {
  if (count >= 1 && count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(operation, ": there are ", count, " groups, must be 1 to ", limit));
}

absl::Status CheckGroupIndex(absl::string_view operation, int64_t segment, int32_t group,
                             size_t count) {
  if (group >= 0 && static_cast<size_t>(group) < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": segment ", segment, " is in group ",
                                                 group, ", but there are ", count));
}

absl::Status AddStep(absl::string_view operation, const StepState* state,
                     const GroupStep* group_steps, const std::optional<OneStep>& one_step,
                     size_t groups, ListArguments& arguments) {
  if (!one_step.has_value()) {
    BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("state", state, 1));
    return arguments.AddOperand("group_steps", group_steps, groups);
  }
  const auto refuse = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": one_step ", parts...));
  };
  if (state != nullptr || group_steps != nullptr) {
    return refuse("is given beside state or group_steps");
  }
  if (one_step->step < 1) return refuse("has step ", one_step->step, ", must be at least 1");
  if (!std::isfinite(one_step->grad_multiplier)) {
    return refuse("has grad_multiplier ", one_step->grad_multiplier, ", must be finite");
  }
  if (one_step->lr == nullptr) return refuse("has no lr");
  if (groups > kMaxOneStepGroups) {
    return refuse("is for at most ", kMaxOneStepGroups, " groups, but there are ", groups);
  }
  for (size_t i = 0; i < groups; ++i) {
    const float lr = one_step->lr[i];
    if (!(lr >= 0.0f && std::isfinite(lr))) {
      return refuse("has lr ", lr, " for group ", i, ", must be at least 0 and finite");
    }
  }
  return absl::OkStatus();
}

}  // namespace brigade::kernels
