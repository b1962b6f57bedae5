#include "brigade/models/model.h"

#include <cstddef>

#include "brigade/device/status_macros.h"

namespace brigade::models {

nn::Gradient UnitParameters::gradient(int parameter) {
  if (parameter < 0 || !trainable_[static_cast<size_t>(parameter)]) return {};
  const zero::GradientTarget target = scope_.gradient(parameter);
  return {target.data, target.accumulate};
}

Model::Model(zero::ModelSpec spec) : spec_(std::move(spec)) {
  for (const zero::UnitSpec& unit : spec_) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      trainable_.push_back(parameter.trainable);
    }
  }
}

absl::Status Forward(Model& model, const Batch& batch, void* losses, zero::ParameterSource& source,
                     device::Stream& stream, const PassMark& mark) {
  for (int unit = 0; unit < static_cast<int>(model.spec().size()); ++unit) {
    zero::UnitScope scope(source, unit, zero::Pass::kForward);
    BRIGADE_RETURN_IF_ERROR(scope.status());
    UnitParameters parameters(model.trainable(), scope);
    if (mark) BRIGADE_RETURN_IF_ERROR(mark(profile::Pass::kForward, unit));
    BRIGADE_RETURN_IF_ERROR(model.ForwardUnit(unit, batch, losses, parameters, stream));
    BRIGADE_RETURN_IF_ERROR(scope.Release());
  }
  return absl::OkStatus();
}

absl::Status Backward(Model& model, const Batch& batch, const float* seed,
                      zero::ParameterSource& source, device::Stream& stream, const PassMark& mark) {
  for (int unit = static_cast<int>(model.spec().size()) - 1; unit >= 0; --unit) {
    zero::UnitScope scope(source, unit, zero::Pass::kBackward);
    BRIGADE_RETURN_IF_ERROR(scope.status());
    UnitParameters parameters(model.trainable(), scope);
    if (mark) BRIGADE_RETURN_IF_ERROR(mark(profile::Pass::kRecompute, unit));
    BRIGADE_RETURN_IF_ERROR(model.RecomputeUnit(unit, batch, parameters, stream));
    if (mark) BRIGADE_RETURN_IF_ERROR(mark(profile::Pass::kBackward, unit));
    BRIGADE_RETURN_IF_ERROR(model.BackwardUnit(unit, batch, seed, parameters, stream));
    BRIGADE_RETURN_IF_ERROR(scope.Release());
    BRIGADE_RETURN_IF_ERROR(source.GradientsReady(unit));
  }
  return absl::OkStatus();
}

}  // namespace brigade::models
