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

Gpt2::Gpt2(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan,
           const ModelCut& cut)
    : Decoder(config, options, plan, cut) {}

Gpt2::Layers Gpt2::LayersOf(int first) const {
  const int64_t width = config().width, inner = shard().inner;
  const int64_t attention = shard().attention_width();
  const auto layer = [&](Block weight, Cut cut, int64_t inputs, int64_t outputs) {
    return LinearLayer{.weight = first + weight,
                       .bias = first + weight + 1,
                       .cut = cut,
                       .inputs = inputs,
                       .outputs = outputs,
                       .input_major = true};
  };
  return {.projection = layer(kProjectionWeight, Cut::kColumns, width, 3 * attention),
          .out = layer(kOutWeight, Cut::kRows, attention, width),
          .expand = layer(kExpandWeight, Cut::kColumns, width, inner),
          .contract = layer(kContractWeight, Cut::kRows, inner, width)};
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
    for (int s = 0; s < local_shards(); ++s) {
      const int64_t size = 3 * call.rows() * shard().attention_width();
      BRIGADE_RETURN_IF_ERROR(Attend(call, OfShard(arrays.projected, s, size), arrays, s));
    }
  }
  BRIGADE_RETURN_IF_ERROR(AddBranch(call, layers.out, arrays.heads, x, arrays.middle));
  BRIGADE_RETURN_IF_ERROR(
      Norm(call, first + kNorm2Weight, first + kNorm2Bias, arrays.middle, arrays.norm2));
  LinearLayer expand = layers.expand;
  const void* const bias = call.parameters.weights(std::exchange(expand.bias, -1));
  BRIGADE_RETURN_IF_ERROR(Linear(call, expand, arrays.norm2.y, arrays.expanded));
  for (int s = 0; s < local_shards(); ++s) {
    const int64_t inner = shard().inner, size = call.rows() * inner;
    BRIGADE_RETURN_IF_ERROR(
        nn::AddBiasGelu({dtype(), call.rows(), inner}, OfShard(arrays.expanded, s, size),
                        OfShard(bias, s, inner), OfShard(arrays.activated, s, size), call.stream));
  }
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
    // Of all shards.
    BRIGADE_RETURN_IF_ERROR(nn::GeluBackward({dtype(), local_shards() * call.rows(), shard().inner},
                                             arrays.expanded, g.dactivated, call.stream));
  }
  BRIGADE_RETURN_IF_ERROR(
      ColumnsBackward(call, {{layers.expand, g.dactivated}}, arrays.norm2.y, m.y));
  BRIGADE_RETURN_IF_ERROR(
      NormBackward(call, first + kNorm2Weight, first + kNorm2Bias, arrays.middle, arrays.norm2));
  BRIGADE_RETURN_IF_ERROR(Keep(call, g.dmiddle));
  BRIGADE_RETURN_IF_ERROR(LinearBackward(call, layers.out, arrays.heads, g.dmiddle, {m.dheads}));
  for (int s = 0; s < local_shards() && inputs; ++s) {
    const int64_t size = 3 * call.rows() * shard().attention_width();
    BRIGADE_RETURN_IF_ERROR(AttendBackward(call, OfShard(arrays.projected, s, size), arrays, s,
                                           OfShard(g.dprojected, s, size)));
  }
  BRIGADE_RETURN_IF_ERROR(
      ColumnsBackward(call, {{layers.projection, g.dprojected}}, arrays.norm1.y, m.y));
  return NormBackward(call, first + kNorm1Weight, first + kNorm1Bias, x, arrays.norm1);
}

}  // namespace brigade::models
