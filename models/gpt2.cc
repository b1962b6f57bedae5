#include "brigade/models/gpt2.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/pointwise.h"

namespace brigade::models {
namespace {

// Numbers of a block's parameters.
enum Block {
  kNorm1Weight,
  kNorm1Bias,
  kProjectionWeight,
  kProjectionBias,
  kOutWeight,
  kOutBias,
  kNorm2Weight,
  kNorm2Bias,
  kExpandWeight,
  kExpandBias,
  kContractWeight,
  kContractBias,
};

}  // namespace

zero::ModelSpec SpecOfGpt2(const DecoderConfig& config) {
  const int64_t width = config.width, inner = config.inner;
  zero::ModelSpec spec = {{"transformer.embedding",
                           {{.name = "transformer.wte.weight", .shape = {config.vocabulary, width}},
                            {.name = "transformer.wpe.weight", .shape = {config.positions, width}}},
                           {}}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    zero::UnitSpec block = {.name = absl::StrCat("transformer.h.", layer)};
    const auto add = [&](absl::string_view name, std::vector<int64_t> weight, int64_t bias) {
      block.parameters.push_back(
          {.name = absl::StrCat(block.name, ".", name, ".weight"), .shape = std::move(weight)});
      block.parameters.push_back(
          {.name = absl::StrCat(block.name, ".", name, ".bias"), .shape = {bias}});
    };
    add("ln_1", {width}, width);
    add("attn.c_attn", {width, 3 * width}, 3 * width);
    add("attn.c_proj", {width, width}, width);
    add("ln_2", {width}, width);
    add("mlp.c_fc", {width, inner}, inner);
    add("mlp.c_proj", {inner, width}, width);
    spec.push_back(std::move(block));
  }
  zero::UnitSpec& head = spec.emplace_back(zero::UnitSpec{.name = "head"});
  head.parameters.push_back({.name = "transformer.ln_f.weight", .shape = {width}});
  head.parameters.push_back({.name = "transformer.ln_f.bias", .shape = {width}});
  if (config.tied) {
    head.tied = {"transformer.wte.weight"};
  } else {
    head.parameters.push_back({.name = "lm_head.weight", .shape = {config.vocabulary, width}});
  }
  return spec;
}

Gpt2::Gpt2(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan)
    : Decoder(config, options, plan) {}

Gpt2::Layers Gpt2::LayersOf(int first) const {
  const int64_t width = config().width, inner = config().inner;
  const auto layer = [&](Block weight, int64_t inputs, int64_t outputs) {
    return LinearLayer{.weight = first + weight,
                       .bias = first + weight + 1,
                       .inputs = inputs,
                       .outputs = outputs,
                       .input_major = true};
  };
  return {.projection = layer(kProjectionWeight, width, 3 * width),
          .out = layer(kOutWeight, width, width),
          .expand = layer(kExpandWeight, width, inner),
          .contract = layer(kContractWeight, inner, width)};
}

absl::Status Gpt2::AddBranch(const Call& call, LinearLayer layer, const void* x,
                             const void* residual, void* y) {
  const void* const bias = call.parameters.weights(std::exchange(layer.bias, -1));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layer, x, y));
  return nn::AddBias({dtype(), call.rows(), config().width}, y, bias, residual, call.stream);
}

absl::Status Gpt2::ForwardBlock(const Call& call, int first, const void* x,
                                const BlockArrays& arrays, void* out) {
  const Layers layers = LayersOf(first);
  BRIGADE_RETURN_IF_ERROR(Norm(call, first + kNorm1Weight, first + kNorm1Bias, x, arrays.norm1));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.projection, arrays.norm1.y, arrays.projected));
  if (call.first.has_value()) {
    BRIGADE_RETURN_IF_ERROR(CachedAttention(call, arrays));
  } else {
    BRIGADE_RETURN_IF_ERROR(Attend(call, arrays.projected, arrays));
  }
  BRIGADE_RETURN_IF_ERROR(AddBranch(call, layers.out, arrays.heads, x, arrays.middle));
  BRIGADE_RETURN_IF_ERROR(
      Norm(call, first + kNorm2Weight, first + kNorm2Bias, arrays.middle, arrays.norm2));
  LinearLayer expand = layers.expand;
  const void* const bias = call.parameters.weights(std::exchange(expand.bias, -1));
  BRIGADE_RETURN_IF_ERROR(Linear(call, expand, arrays.norm2.y, arrays.expanded));
  BRIGADE_RETURN_IF_ERROR(nn::AddBiasGelu({dtype(), call.rows(), config().inner}, arrays.expanded,
                                          bias, arrays.activated, call.stream));
  if (out == nullptr) return absl::OkStatus();
  return AddBranch(call, layers.contract, arrays.activated, arrays.middle, out);
}

absl::Status Gpt2::BackwardBlock(const Call& call, int first, const void* x,
                                 const BlockArrays& arrays) {
  const Layers layers = LayersOf(first);
  const DecoderMemory& m = memory();
  const BlockGradients g = GradientsOf(call);
  const bool inputs = call.computes_inputs();
  BRIGADE_RETURN_IF_ERROR(Keep(call, g.dout));
  BRIGADE_RETURN_IF_ERROR(
      LinearBackward(call, layers.contract, arrays.activated, g.dout, {g.dactivated}));
  if (inputs) {
    BRIGADE_RETURN_IF_ERROR(nn::GeluBackward({dtype(), call.rows(), config().inner},
                                             arrays.expanded, g.dactivated, call.stream));
  }
  BRIGADE_RETURN_IF_ERROR(LinearBackward(call, layers.expand, arrays.norm2.y, g.dactivated, {m.y}));
  BRIGADE_RETURN_IF_ERROR(
      NormBackward(call, first + kNorm2Weight, first + kNorm2Bias, arrays.middle, arrays.norm2));
  BRIGADE_RETURN_IF_ERROR(Keep(call, g.dmiddle));
  BRIGADE_RETURN_IF_ERROR(LinearBackward(call, layers.out, arrays.heads, g.dmiddle, {m.dheads}));
  if (inputs) {
    BRIGADE_RETURN_IF_ERROR(AttendBackward(call, arrays.projected, arrays, g.dprojected));
  }
  BRIGADE_RETURN_IF_ERROR(
      LinearBackward(call, layers.projection, arrays.norm1.y, g.dprojected, {m.y}));
  return NormBackward(call, first + kNorm1Weight, first + kNorm1Bias, x, arrays.norm1);
}

}  // namespace brigade::models
