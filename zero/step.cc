#include "brigade/zero/step.h"

#include "absl/strings/str_cat.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::zero {

UnitScope::UnitScope(ParameterSource& source, int unit, Pass pass)
    : source_(source), unit_(unit), status_(source.Acquire(unit, pass)), acquired_(status_.ok()) {}

UnitScope::~UnitScope() { Release().IgnoreError(); }

absl::Status UnitScope::Release() {
  if (acquired_) status_.Update(source_.Release(unit_));
  acquired_ = false;
  return status_;
}

const void* UnitScope::Weights(int parameter) {
  if (!status_.ok()) return nullptr;
  const absl::StatusOr<const void*> weights = source_.Weights(parameter);
  status_.Update(weights.status());
  return status_.ok() ? *weights : nullptr;
}

const void* UnitScope::WeightsOf(int parameter, precision::DType dtype) {
  const void* const weights = Weights(parameter);
  if (!status_.ok() || source_.TypeOf(parameter) == dtype) return weights;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("parameter ", parameter, " is read as ", precision::ShortName(dtype),
                   ", its weights are ", precision::ShortName(source_.TypeOf(parameter))));
  return nullptr;
}

GradientTarget UnitScope::gradient(int parameter) {
  if (!status_.ok()) return {};
  const absl::StatusOr<GradientTarget> target = source_.Gradient(unit_, parameter);
  status_.Update(target.status());
  return status_.ok() ? *target : GradientTarget();
}

}  // namespace brigade::zero
