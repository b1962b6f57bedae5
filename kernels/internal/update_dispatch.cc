#include "brigade/kernels/internal/update_dispatch.h"

#include "absl/strings/str_cat.h"
#include "brigade/kernels/list_arguments.h"

namespace brigade::kernels {

using precision::DType;

absl::Status CheckUpdateTypes(absl::string_view operation, DType grad_dtype,
                              std::optional<DType> copy_dtype) {
  BRIGADE_RETURN_IF_ERROR(CheckFloatType(operation, "grad", grad_dtype));
  if (copy_dtype.has_value() && *copy_dtype != DType::kFloat16 && *copy_dtype != DType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": dtype of param_copy is ",
                                                   precision::Name(*copy_dtype),
                                                   ", must be float16 or bfloat16"));
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

}  // namespace brigade::kernels
