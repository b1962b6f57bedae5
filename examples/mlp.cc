#include "brigade/examples/mlp.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/random.h"
#include "brigade/nn/squared_error.h"
#include "brigade/profile/flops.h"

namespace brigade::examples {
namespace {

constexpr auto kType = precision::DType::kFloat32;

zero::ModelSpec SpecOf(const std::vector<int64_t>& widths) {
  zero::ModelSpec spec;
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    const std::string name = absl::StrCat("layers.", l);
    spec.push_back(
        {name,
         {{name + ".weight", widths[l] * widths[l + 1]}, {name + ".bias", widths[l + 1]}},
         {}});
  }
  return spec;
}

nn::TokenIds Classes(const models::Batch& batch, int64_t classes) {
  const auto* const labels = static_cast<const int32_t*>(batch.targets);
  return nn::TokenIds::WithLabels(labels, labels, batch.samples, 1, classes);
}

}  // namespace

Mlp::Mlp(std::vector<int64_t> widths, Loss loss, int64_t samples)
    : Model(SpecOf(widths)), widths_(std::move(widths)), loss_(loss), samples_(samples) {}

absl::StatusOr<std::unique_ptr<models::Model>> Mlp::Create(const train::ModelPlace& place,
                                                           std::vector<int64_t> widths, Loss loss) {
  if (place.config.zero.dtype != kType) {
    return absl::InvalidArgumentError("the model is of float32, without fp16 or bf16");
  }
  std::unique_ptr<Mlp> mlp(new Mlp(std::move(widths), loss, place.samples));
  // It tells what it would be.
  if (place.stage.has_value() && place.stage->chunks.empty()) return mlp;
  device::Context& context = place.context;
  const auto add = [&](size_t layer, std::vector<device::Buffer>& arrays) -> absl::Status {
    const int64_t bytes = place.samples * mlp->widths_[layer + 1] * int64_t{sizeof(float)};
    BRIGADE_ASSIGN_OR_RETURN(arrays.emplace_back(),
                             context.Allocate(bytes, device::Purpose::kActivations, "activations"));
    mlp->bytes_.activations += bytes;
    return absl::OkStatus();
  };
  const auto layers = static_cast<size_t>(mlp->layers());
  // All layers have memory, whichever a stage of a pipeline has, for each pass that is in flight.
  mlp->outputs_.resize(place.stage.has_value() ? static_cast<size_t>(place.stage->slots) : 1);
  for (std::vector<device::Buffer>& slot : mlp->outputs_) {
    for (size_t l = 0; l < layers; ++l) BRIGADE_RETURN_IF_ERROR(add(l, slot));
  }
  for (size_t l = 0; l + 1 < layers; ++l) BRIGADE_RETURN_IF_ERROR(add(l, mlp->gradients_));
  BRIGADE_ASSIGN_OR_RETURN(mlp->blas_, nn::Blas::Create(context, /*workspace_bytes=*/0));
  const nn::Workspace::Sizes sizes = {
      .rows = place.samples, .sums = *std::max_element(mlp->widths_.begin(), mlp->widths_.end())};
  BRIGADE_ASSIGN_OR_RETURN(mlp->workspace_, nn::Workspace::Create(context, kType, sizes));
  BRIGADE_ASSIGN_OR_RETURN(mlp->bytes_.scratch, nn::Workspace::Bytes(context, kType, sizes));
  mlp->bytes_.scratch += nn::Blas::ScratchBytes(context.device(), 0);
  return mlp;
}

std::optional<models::UnitFlops> Mlp::FlopsOf(int unit, const models::Batch& batch) const {
  const auto l = static_cast<size_t>(unit);
  const auto rows = static_cast<double>(batch.samples), inputs = static_cast<double>(widths_[l]),
             outputs = static_cast<double>(widths_[l + 1]);
  const double product = profile::MatmulFlops(rows, inputs, outputs);
  const double pointwise = profile::GeluFlops(rows * outputs);
  // The first layer has no gradient of what comes in.
  return models::UnitFlops{{{.products = product, .pointwise = pointwise},
                            {.products = (unit == 0 ? 1 : 2) * product, .pointwise = pointwise},
                            {}}};
}

std::optional<models::Boundary> Mlp::BoundaryOf(const models::Batch& batch) const {
  // What is between two layers; narrower ones leave the rest.
  int64_t most = 0;
  for (size_t l = 1; l + 1 < widths_.size(); ++l) most = std::max(most, widths_[l]);
  return models::Boundary{batch.samples * most, kType};
}

const float* Mlp::input(int layer, const models::Batch& batch) const {
  if (layer == 0) return static_cast<const float*>(batch.inputs);
  if (batch.chunk.is_first(layer)) return static_cast<const float*>(batch.chunk.input);
  return output(layer - 1, batch);
}

float* Mlp::output(int layer, const models::Batch& batch) const {
  if (layer + 1 < layers() && batch.chunk.is_last(layer)) {
    return static_cast<float*>(batch.chunk.output);
  }
  return outputs_[static_cast<size_t>(batch.chunk.slot)][static_cast<size_t>(layer)]
      .as<float>()
      .data();
}

float* Mlp::gradient(int layer, const models::Batch& batch) const {
  if (layer + 1 == layers()) return output(layer, batch);
  const models::ChunkPass& chunk = batch.chunk;
  if (chunk.is_last(layer)) return static_cast<float*>(chunk.output_gradient);
  if (layer >= 0 && !chunk.is_first(layer + 1)) {
    return gradients_[static_cast<size_t>(layer)].as<float>().data();
  }
  // Of what the first layer reads there is none.
  return static_cast<float*>(chunk.input_gradient);
}

void Mlp::Initialize(int parameter, uint64_t seed, absl::Span<float> values) const {
  nn::Random random(seed, static_cast<uint64_t>(parameter));
  const double range = 1 / std::sqrt(widths_[static_cast<size_t>(parameter) / 2]);
  for (float& value : values) value = static_cast<float>((2 * random.Uniform() - 1) * range);
}

nn::LinearInput Mlp::InputOf(int layer, const models::Batch& batch, const void* weight) const {
  const auto l = static_cast<size_t>(layer);
  return {.dtype = kType,
          .x = input(layer, batch),
          .weight = weight,
          .rows = batch.samples,
          .inputs = widths_[l],
          .outputs = widths_[l + 1]};
}

absl::Status Mlp::Check(const models::Batch& batch) const {
  if (batch.samples <= samples_ && batch.positions == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.samples, " samples of ",
                                                 batch.positions, " positions, for a model of ",
                                                 samples_, " of one"));
}

absl::Status Mlp::ForwardUnit(int unit, const models::Batch& batch, void* losses,
                              models::UnitParameters& parameters, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(batch));
  const void *weight = parameters.weights(2 * unit), *bias = parameters.weights(2 * unit + 1);
  BRIGADE_RETURN_IF_ERROR(parameters.status());
  const nn::LinearInput input = InputOf(unit, batch, weight);
  float* const y = output(unit, batch);
  BRIGADE_RETURN_IF_ERROR(nn::Linear(input, bias, y, *blas_, stream));
  const nn::MatrixShape shape = {kType, batch.samples, input.outputs};
  if (unit + 1 < layers()) return nn::Relu(shape, y, y, stream);
  if (losses == nullptr) return absl::OkStatus();
  return loss_ == Loss::kSquaredError
             ? nn::SquaredError(shape, y, batch.targets, losses, stream)
             : nn::CrossEntropy(Classes(batch, input.outputs), kType, y, losses, stream);
}

absl::Status Mlp::BackwardUnit(int unit, const models::Batch& batch, const float* seed,
                               models::UnitParameters& parameters, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(batch));
  const void* const weight = parameters.weights(2 * unit);
  const nn::Gradient dweight = parameters.gradient(2 * unit);
  const nn::Gradient dbias = parameters.gradient(2 * unit + 1);
  BRIGADE_RETURN_IF_ERROR(parameters.status());
  const nn::LinearInput input = InputOf(unit, batch, weight);
  const bool is_last = unit + 1 == layers();
  float* const dy = gradient(unit, batch);
  if (is_last) {
    BRIGADE_RETURN_IF_ERROR(
        loss_ == Loss::kSquaredError
            ? nn::SquaredErrorBackward({kType, batch.samples, input.outputs}, dy, batch.targets,
                                       seed, stream)
            : nn::CrossEntropyBackward(Classes(batch, input.outputs), kType, dy, seed, stream));
  }
  float* const dx = gradient(unit - 1, batch);
  BRIGADE_RETURN_IF_ERROR(
      nn::LinearBackward(input, dy, {dx}, dweight, dbias, *blas_, *workspace_, stream));
  if (unit == 0) return absl::OkStatus();
  return nn::ReluBackward({kType, batch.samples, input.inputs}, input.x, dx, stream);
}

}  // namespace brigade::examples
