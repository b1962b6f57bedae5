#ifndef BRIGADE_KERNELS_INTERNAL_UPDATE_DISPATCH_H_
#define BRIGADE_KERNELS_INTERNAL_UPDATE_DISPATCH_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/update_types.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

// InvalidArgument unless BRIGADE_FOR_EACH_UPDATE_TYPE has the combination.
absl::Status CheckUpdateTypes(absl::string_view operation, precision::DType grad_dtype,
                              std::optional<precision::DType> copy_dtype);

// Calls visit(gradient tag, copy tag) with value-initialised element types; they passed the check
// above.
template <typename Visitor>
void VisitUpdateTypes(precision::DType grad_dtype, std::optional<precision::DType> copy_dtype,
                      const Visitor& visit) {
  precision::VisitFloat(grad_dtype, [&](auto grad) {
    if (!copy_dtype.has_value()) {
      visit(grad, NoCopy());
    } else if (*copy_dtype == precision::DType::kFloat16) {
      visit(grad, precision::Half());
    } else {
      visit(grad, precision::BFloat16());
    }
  });
}

// InvalidArgument unless a list has 1 to `limit` groups.
absl::Status CheckGroupCount(absl::string_view operation, size_t count, size_t limit);

// InvalidArgument unless segment `segment` is in one of `count` groups.
absl::Status CheckGroupIndex(absl::string_view operation, int64_t segment, int32_t group,
                             size_t count);

// Adds the step's operands, which are in device memory unless `one_step` has a value.
// InvalidArgument for one that has both, or numbers that no step has.
absl::Status AddStep(absl::string_view operation, const StepState* state,
                     const GroupStep* group_steps, const std::optional<OneStep>& one_step,
                     size_t groups, ListArguments& arguments);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_UPDATE_DISPATCH_H_
