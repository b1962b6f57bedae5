#include "brigade/models/parameter_arrays.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::models {
namespace {

int64_t BytesOf(const zero::ParameterSpec& parameter, precision::DType dtype) {
  const int64_t bytes = parameter.size * precision::SizeOf(parameter.dtype.value_or(dtype));
  return (bytes + 255) / 256 * 256;
}

}  // namespace

int64_t ParameterArrays::WeightBytes(const zero::ModelSpec& model, precision::DType dtype) {
  int64_t bytes = 0;
  for (const zero::UnitSpec& unit : model) {
    for (const zero::ParameterSpec& parameter : unit.parameters) bytes += BytesOf(parameter, dtype);
  }
  return bytes;
}

absl::StatusOr<ParameterArrays> ParameterArrays::Create(const zero::ModelSpec& model,
                                                        const Options& options,
                                                        device::Context& context) {
  ParameterArrays arrays;
  arrays.options_ = options;
  int64_t weight_bytes = 0, gradient_bytes = 0;
  for (const zero::UnitSpec& unit : model) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      const int64_t bytes = BytesOf(parameter, options.dtype);
      arrays.sizes_.push_back(parameter.size);
      arrays.types_.push_back(parameter.dtype.value_or(options.dtype));
      arrays.weight_offsets_.push_back(weight_bytes);
      weight_bytes += bytes;
      const bool has_gradient = options.gradients && parameter.trainable;
      arrays.gradient_offsets_.push_back(has_gradient ? gradient_bytes : kNone);
      if (has_gradient) gradient_bytes += bytes;
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(
      arrays.weights_,
      context.Allocate(weight_bytes, device::Purpose::kParameters, "weights of the model"));
  BRIGADE_ASSIGN_OR_RETURN(
      arrays.gradients_,
      context.Allocate(gradient_bytes, device::Purpose::kGradients, "gradients of the model"));
  arrays.BeginGradients();
  return arrays;
}

void* ParameterArrays::At(const device::Buffer& memory, const std::vector<int64_t>& offsets,
                          int parameter) {
  const int64_t offset = offsets[static_cast<size_t>(parameter)];
  return offset == kNone ? nullptr : static_cast<char*>(memory.data()) + offset;
}

absl::Status ParameterArrays::CheckParameter(int parameter) const {
  if (parameter >= 0 && parameter < size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", parameter, " of a model of ", size()));
}

absl::Status ParameterArrays::Acquire(int, zero::Pass) { return absl::OkStatus(); }
absl::Status ParameterArrays::Release(int) { return absl::OkStatus(); }
absl::Status ParameterArrays::GradientsReady(int) { return absl::OkStatus(); }
precision::DType ParameterArrays::TypeOf(int parameter) const { return type_of(parameter); }

absl::StatusOr<const void*> ParameterArrays::Weights(int parameter) const {
  BRIGADE_RETURN_IF_ERROR(CheckParameter(parameter));
  return weights(parameter);
}

absl::StatusOr<zero::GradientTarget> ParameterArrays::Gradient(int, int parameter) {
  BRIGADE_RETURN_IF_ERROR(CheckParameter(parameter));
  void* const data = gradient(parameter);
  if (data == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", parameter, " has no gradient"));
  }
  const auto p = static_cast<size_t>(parameter);
  const bool accumulate = written_[p];
  written_[p] = true;
  return zero::GradientTarget{data, accumulate};
}

}  // namespace brigade::models
