#include "brigade/models/model.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/device/status_macros.h"

namespace brigade::models {

const void* UnitParameters::weights(int parameter) {
  if (parameter < 0) return nullptr;
  if (scope_ != nullptr) return scope_->weights(numbers_.parameter(parameter));
  status_.Update(absl::InternalError("weights in the half of a backward pass that has none"));
  return nullptr;
}

nn::Gradient UnitParameters::gradient(int parameter) {
  if (parameter < 0 || !trainable_[static_cast<size_t>(parameter)]) return {};
  const int number = numbers_.parameter(parameter);
  if (scope_ != nullptr) {
    const zero::GradientTarget target = scope_->gradient(number);
    return {target.data, target.accumulate};
  }
  if (!status_.ok()) return {};
  const absl::StatusOr<zero::GradientTarget> target = source_->Gradient(unit_, number);
  status_ = target.status();
  return target.ok() ? nn::Gradient{target->data, target->accumulate} : nn::Gradient();
}

Model::Model(zero::ModelSpec spec) : spec_(std::move(spec)) {
  for (const zero::UnitSpec& unit : spec_) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      trainable_.push_back(parameter.trainable);
      sizes_.push_back(parameter.size);
    }
  }
}

absl::StatusOr<std::vector<int>> NumbersIn(const Model& model, const zero::Plan& plan,
                                           bool is_shared) {
  std::vector<zero::Parameter> parameters;
  for (const zero::UnitSpec& unit : model.spec()) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      parameters.push_back({.spec = parameter});
    }
  }
  if (!is_shared && plan.parameters().size() != parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("an optimizer of ", plan.parameters().size(),
                                                   " parameters for a model of ",
                                                   parameters.size()));
  }
  std::vector<int> numbers = checkpoint::NumbersIn(parameters, plan);
  for (size_t p = 0; p < numbers.size(); ++p) {
    if (numbers[p] >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("an optimizer with the parameter \"",
                                                   plan.parameters()[p].spec.name,
                                                   "\", which the model does not have"));
  }
  return numbers;
}

namespace {

parallel::StageRange UnitsOf(const Model& model, const Batch& batch) {
  if (batch.chunk.units.size() > 0) return batch.chunk.units;
  return {0, static_cast<int>(model.spec().size())};
}

}  // namespace

absl::Status Forward(Model& model, const Batch& batch, void* losses, zero::ParameterSource& source,
                     device::Stream& stream, const PassMark& mark, const SourceNumbers& numbers) {
  const parallel::StageRange units = UnitsOf(model, batch);
  for (int unit = units.first; unit < units.end; ++unit) {
    zero::UnitScope scope(source, numbers.unit(unit), zero::Pass::kForward);
    BRIGADE_RETURN_IF_ERROR(scope.status());
    UnitParameters parameters(model.trainable(), scope, numbers);
    if (mark) BRIGADE_RETURN_IF_ERROR(mark(profile::Pass::kForward, unit));
    BRIGADE_RETURN_IF_ERROR(model.ForwardUnit(unit, batch, losses, parameters, stream));
    BRIGADE_RETURN_IF_ERROR(scope.Release());
  }
  return absl::OkStatus();
}

absl::Status Backward(Model& model, const Batch& batch, const float* seed,
                      zero::ParameterSource& source, device::Stream& stream, const PassMark& mark,
                      const SourceNumbers& numbers) {
  const parallel::StageRange units = UnitsOf(model, batch);
  const BackwardHalf half = batch.chunk.half;
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    if (half == BackwardHalf::kWeights) {
      UnitParameters parameters(model.trainable(), source, numbers.unit(unit), numbers);
      if (mark) BRIGADE_RETURN_IF_ERROR(mark(profile::Pass::kBackward, unit));
      BRIGADE_RETURN_IF_ERROR(model.BackwardUnit(unit, batch, seed, parameters, stream));
      BRIGADE_RETURN_IF_ERROR(parameters.status());
    } else {
      zero::UnitScope scope(source, numbers.unit(unit), zero::Pass::kBackward);
      BRIGADE_RETURN_IF_ERROR(scope.status());
      UnitParameters parameters(model.trainable(), scope, numbers);
      if (mark) BRIGADE_RETURN_IF_ERROR(mark(profile::Pass::kRecompute, unit));
      BRIGADE_RETURN_IF_ERROR(model.RecomputeUnit(unit, batch, parameters, stream));
      if (mark) BRIGADE_RETURN_IF_ERROR(mark(profile::Pass::kBackward, unit));
      BRIGADE_RETURN_IF_ERROR(model.BackwardUnit(unit, batch, seed, parameters, stream));
      BRIGADE_RETURN_IF_ERROR(scope.Release());
    }
    if (half != BackwardHalf::kInputs) {
      BRIGADE_RETURN_IF_ERROR(source.GradientsReady(numbers.unit(unit)));
    }
  }
  return absl::OkStatus();
}

}  // namespace brigade::models
