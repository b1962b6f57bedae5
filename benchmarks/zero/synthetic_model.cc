#include "brigade/benchmarks/zero/synthetic_model.h"

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {
namespace {

constexpr auto kType = precision::DType::kBFloat16;
constexpr int64_t kBytes = precision::SizeOf(kType);

}  // namespace

zero::ModelSpec SyntheticModel::Spec() const {
  zero::ModelSpec spec;
  for (int u = 0; u < units; ++u) {
    zero::UnitSpec unit = {.name = absl::StrCat("unit", u)};
    for (int p = 0; p < parameters_per_unit; ++p) {
      unit.parameters.push_back(
          {.name = absl::StrCat("unit", u, ".", p), .size = unit_elements / parameters_per_unit});
    }
    spec.push_back(unit);
  }
  return spec;
}

SyntheticTransformer::SyntheticTransformer(const SyntheticModel& model, device::Stream& compute)
    : model_(model), compute_(compute) {
  segments_.reserve(static_cast<size_t>(model.parameters_per_unit));
}

absl::StatusOr<std::unique_ptr<SyntheticTransformer>> SyntheticTransformer::Create(
    const SyntheticModel& model, device::Context& context, device::Stream& compute) {
  std::unique_ptr<SyntheticTransformer> transformer(new SyntheticTransformer(model, compute));
  // Two halves: passes go from one to the other.
  const int64_t unit_bytes = model.unit_elements * kBytes;
  struct Part {
    device::Buffer& buffer;
    int64_t bytes;
  };
  for (const Part& part : {Part{transformer->weights_, model.elements() * kBytes},
                           Part{transformer->gradients_, model.elements() * kBytes},
                           Part{transformer->activations_, 2 * unit_bytes}}) {
    BRIGADE_ASSIGN_OR_RETURN(auto buffer,
                             context.Allocate(part.bytes, device::Purpose::kActivations, "model"));
    BRIGADE_RETURN_IF_ERROR(compute.FillBytes(buffer.data(), 0, part.bytes));
    part.buffer = std::move(buffer);
  }
  BRIGADE_RETURN_IF_ERROR(compute.Synchronize());
  return transformer;
}

char* SyntheticTransformer::Activation(int parameter_of_unit) {
  return activations_.as<char>().data() +
         parameter_of_unit * (model_.unit_elements / model_.parameters_per_unit) * kBytes;
}

absl::Status SyntheticTransformer::Copy() {
  return kernels::Cast(segments_, {.source_dtype = kType, .target_dtype = kType}, compute_);
}

absl::Status SyntheticTransformer::Activations() {
  char* const half = activations_.as<char>().data();
  for (int pass = 0; pass < model_.passes; ++pass) {
    const int64_t other = model_.unit_elements * kBytes;
    const kernels::CastSegment whole = {half + (pass % 2) * other, half + (1 - pass % 2) * other,
                                        model_.unit_elements};
    BRIGADE_RETURN_IF_ERROR(
        kernels::Cast({whole}, {.source_dtype = kType, .target_dtype = kType}, compute_));
  }
  return absl::OkStatus();
}

absl::Status SyntheticTransformer::Forward(zero::ZeroOptimizer& zero) {
  for (int unit = 0; unit < model_.units; ++unit) {
    zero::UnitScope scope(zero, unit, zero::Pass::kForward);
    segments_.clear();
    for (const int p : zero.plan().unit(unit).parameters) {
      segments_.push_back({scope.weights(p), Activation(static_cast<int>(segments_.size())),
                           zero.plan().parameter(p).spec.size});
    }
    BRIGADE_RETURN_IF_ERROR(scope.status());
    BRIGADE_RETURN_IF_ERROR(Copy());
    BRIGADE_RETURN_IF_ERROR(Activations());
    BRIGADE_RETURN_IF_ERROR(scope.Release());
  }
  return absl::OkStatus();
}

absl::Status SyntheticTransformer::Backward(zero::ZeroOptimizer& zero) {
  for (int unit = model_.units; unit-- > 0;) {
    zero::UnitScope scope(zero, unit, zero::Pass::kBackward);
    segments_.clear();
    for (const int p : zero.plan().unit(unit).parameters) {
      segments_.push_back(
          {scope.weights(p), scope.gradient(p).data, zero.plan().parameter(p).spec.size});
    }
    BRIGADE_RETURN_IF_ERROR(scope.status());
    BRIGADE_RETURN_IF_ERROR(Copy());
    BRIGADE_RETURN_IF_ERROR(Activations());
    BRIGADE_RETURN_IF_ERROR(scope.Release());
    BRIGADE_RETURN_IF_ERROR(zero.GradientsReady(unit));
  }
  return zero.FinishBackward();
}

void SyntheticTransformer::ListOwn(int unit, bool backward) {
  const int64_t size = model_.unit_elements / model_.parameters_per_unit;
  segments_.clear();
  for (int p = 0; p < model_.parameters_per_unit; ++p) {
    const int64_t at = (unit * model_.unit_elements + p * size) * kBytes;
    char* const gradient = gradients_.as<char>().data() + at;
    segments_.push_back(
        {weights_.as<char>().data() + at, backward ? gradient : Activation(p), size});
  }
}

absl::Status SyntheticTransformer::ForwardAlone() {
  for (int unit = 0; unit < model_.units; ++unit) {
    ListOwn(unit, false);
    BRIGADE_RETURN_IF_ERROR(Copy());
    BRIGADE_RETURN_IF_ERROR(Activations());
  }
  return absl::OkStatus();
}

absl::Status SyntheticTransformer::BackwardAlone() {
  for (int unit = model_.units; unit-- > 0;) {
    ListOwn(unit, true);
    BRIGADE_RETURN_IF_ERROR(Copy());
    BRIGADE_RETURN_IF_ERROR(Activations());
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
