#include "brigade/models/llama.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/reduce/reduce.h"
#include "brigade/nn/grouped_heads.h"
#include "brigade/nn/pointwise.h"
#include "brigade/nn/rotary.h"
#include "brigade/nn/swiglu.h"

namespace brigade::models {

zero::ModelSpec SpecOfLlama(const DecoderConfig& config) {
  const int64_t width = config.width, inner = config.inner;
  const int64_t queries = config.attention_width();
  const int64_t keys = config.key_value_heads * config.head_width;
  zero::ModelSpec spec = {
      {"model.embed_tokens",
       {{.name = "model.embed_tokens.weight", .shape = {config.vocabulary, width}}},
       {}}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    zero::UnitSpec block = {.name = absl::StrCat("model.layers.", layer)};
    const auto add = [&](absl::string_view name, std::vector<int64_t> shape) {
      block.parameters.push_back(
          {.name = absl::StrCat(block.name, ".", name), .shape = std::move(shape)});
    };
    const auto linear = [&](absl::string_view name, int64_t outputs, int64_t inputs, bool bias) {
      add(absl::StrCat(name, ".weight"), {outputs, inputs});
      if (bias) add(absl::StrCat(name, ".bias"), {outputs});
    };
    linear("self_attn.q_proj", queries, width, config.attention_bias);
    linear("self_attn.k_proj", keys, width, config.attention_bias);
    linear("self_attn.v_proj", keys, width, config.attention_bias);
    linear("self_attn.o_proj", width, queries, config.attention_bias);
    linear("mlp.gate_proj", inner, width, config.mlp_bias);
    linear("mlp.up_proj", inner, width, config.mlp_bias);
    linear("mlp.down_proj", width, inner, config.mlp_bias);
    add("input_layernorm.weight", {width});
    add("post_attention_layernorm.weight", {width});
    spec.push_back(std::move(block));
  }
  zero::UnitSpec& head = spec.emplace_back(zero::UnitSpec{.name = "head"});
  head.parameters.push_back({.name = "model.norm.weight", .shape = {width}});
  if (config.tied) {
    head.tied = {"model.embed_tokens.weight"};
  } else {
    head.parameters.push_back({.name = "lm_head.weight", .shape = {config.vocabulary, width}});
  }
  return spec;
}

Llama::Llama(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan,
             const ModelCut& cut)
    : Decoder(config, options, plan, cut) {}

Llama::Layers Llama::LayersOf(int first_parameter) const {
  const DecoderConfig &c = config(), &of_shard = shard();
  const int64_t keys = of_shard.key_value_heads * of_shard.head_width;
  const int64_t queries = of_shard.attention_width(), inner = of_shard.inner;
  int next = first_parameter;
  // In the order of SpecOfLlama.
  const auto linear = [&](Cut cut, int64_t outputs, int64_t inputs, bool bias,
                          int64_t leading = 0) {
    LinearLayer layer = {
        .weight = next++, .cut = cut, .inputs = inputs, .outputs = outputs, .leading = leading};
    if (bias) layer.bias = next++;
    return layer;
  };
  Layers layers;
  const int64_t projected = of_shard.projected_width();
  layers.query = linear(Cut::kColumns, queries, c.width, c.attention_bias, projected);
  layers.key = linear(Cut::kColumns, keys, c.width, c.attention_bias, projected);
  layers.value = linear(Cut::kColumns, keys, c.width, c.attention_bias, projected);
  layers.out = linear(Cut::kRows, c.width, queries, c.attention_bias);
  layers.gate = linear(Cut::kColumns, inner, c.width, c.mlp_bias, 2 * inner);
  layers.up = linear(Cut::kColumns, inner, c.width, c.mlp_bias, 2 * inner);
  layers.down = linear(Cut::kRows, c.width, inner, c.mlp_bias);
  layers.norm1 = next++;
  layers.norm2 = next++;
  return layers;
}

char* Llama::KeysIn(void* projected) const {
  return static_cast<char*>(projected) + Bytes(shard().attention_width());
}

char* Llama::ValuesIn(void* projected) const {
  return KeysIn(projected) + Bytes(shard().key_value_heads * shard().head_width);
}

char* Llama::UpIn(void* expanded) const {
  return static_cast<char*>(expanded) + Bytes(shard().inner);
}

absl::Status Llama::AddBranch(const Call& call, LinearLayer layer, const void* x,
                              const void* residual, void* y) {
  const int64_t size = call.rows() * config().width;
  if (!is_sharded()) {
    BRIGADE_RETURN_IF_ERROR(call.stream.Copy(y, residual, Bytes(size)));
    return Linear(call, layer, x, y, /*accumulate=*/true);
  }
  const void* const bias = call.parameters.weights(std::exchange(layer.bias, -1));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layer, x, y));
  if (bias != nullptr) {
    return nn::AddBias({dtype(), call.rows(), config().width}, y, bias, residual, call.stream);
  }
  const void* const terms[] = {y, residual};
  void* const sum[] = {y};
  return kernels::Reduce(terms, sum, size, {.dtype = dtype()}, call.stream);
}

nn::RotaryShape Llama::RotatedOf(const Call& call) const {
  return {.dtype = dtype(),
          .batch = call.ids.batch(),
          .context = call.ids.context(),
          .heads = shard().heads + shard().key_value_heads,
          .columns = shard().projected_width(),
          .first_position = call.first.value_or(0),
          .segments = PositionsOf(call)};
}

absl::StatusOr<const void*> Llama::Repeat(const Call& call, const BlockArrays& arrays, int s) {
  const void* const projected = OfShard(arrays.projected, s, ProjectedOf(call));
  if (memory().repeated == nullptr) return projected;
  BRIGADE_RETURN_IF_ERROR(nn::RepeatHeads(
      {dtype(), call.rows(), shard().heads, shard().key_value_heads, shard().head_width}, projected,
      memory().repeated, call.stream));
  return memory().repeated;
}

absl::Status Llama::Attention(const Call& call, const BlockArrays& arrays, int s) {
  BRIGADE_RETURN_IF_ERROR(nn::Rotary(RotatedOf(call), rotary_table(),
                                     OfShard(arrays.projected, s, ProjectedOf(call)), call.stream));
  // Of one shard.
  if (call.first.has_value()) return CachedAttention(call, arrays);
  BRIGADE_ASSIGN_OR_RETURN(const void* const qkv, Repeat(call, arrays, s));
  return Attend(call, qkv, arrays, s);
}

absl::Status Llama::ForwardBlock(const Call& call, int first_parameter, const void* x,
                                 const BlockArrays& arrays, void* out) {
  const Layers layers = LayersOf(first_parameter);
  BRIGADE_RETURN_IF_ERROR(Norm(call, layers.norm1, -1, x, arrays.norm1));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.query, arrays.norm1.y, arrays.projected));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.key, arrays.norm1.y, KeysIn(arrays.projected)));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.value, arrays.norm1.y, ValuesIn(arrays.projected)));
  for (int s = 0; s < local_shards(); ++s) {
    BRIGADE_RETURN_IF_ERROR(Attention(call, arrays, s));
  }
  BRIGADE_RETURN_IF_ERROR(AddBranch(call, layers.out, arrays.heads, x, arrays.middle));
  BRIGADE_RETURN_IF_ERROR(Norm(call, layers.norm2, -1, arrays.middle, arrays.norm2));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.gate, arrays.norm2.y, arrays.expanded));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.up, arrays.norm2.y, UpIn(arrays.expanded)));
  // Rows of all shards.
  BRIGADE_RETURN_IF_ERROR(nn::Swiglu({dtype(), local_shards() * call.rows(), shard().inner},
                                     arrays.expanded, arrays.activated, call.stream));
  if (out == nullptr) return absl::OkStatus();
  return AddBranch(call, layers.down, arrays.activated, arrays.middle, out);
}

absl::Status Llama::BackwardBlock(const Call& call, int first_parameter, const void* x,
                                  const BlockArrays& arrays) {
  const Layers layers = LayersOf(first_parameter);
  const DecoderMemory& m = memory();
  const BlockGradients g = GradientsOf(call);
  const bool inputs = call.computes_inputs();
  BRIGADE_RETURN_IF_ERROR(Keep(call, g.dout));
  BRIGADE_RETURN_IF_ERROR(
      LinearBackward(call, layers.down, arrays.activated, g.dout, {g.dactivated}));
  void* const dexpanded = arrays.expanded;
  if (inputs) {
    BRIGADE_RETURN_IF_ERROR(
        nn::SwigluBackward({dtype(), local_shards() * call.rows(), shard().inner}, arrays.expanded,
                           g.dactivated, {dexpanded}, call.stream));
  }
  BRIGADE_RETURN_IF_ERROR(ColumnsBackward(
      call, {{layers.gate, dexpanded}, {layers.up, UpIn(dexpanded)}}, arrays.norm2.y, m.y));
  BRIGADE_RETURN_IF_ERROR(NormBackward(call, layers.norm2, -1, arrays.middle, arrays.norm2));
  BRIGADE_RETURN_IF_ERROR(Keep(call, g.dmiddle));
  BRIGADE_RETURN_IF_ERROR(LinearBackward(call, layers.out, arrays.heads, g.dmiddle, {m.dheads}));
  for (int s = 0; s < local_shards() && inputs; ++s) {
    BRIGADE_RETURN_IF_ERROR(
        AttentionBackward(call, arrays, s, OfShard(g.dprojected, s, ProjectedOf(call))));
  }
  BRIGADE_RETURN_IF_ERROR(ColumnsBackward(call,
                                          {{layers.query, g.dprojected},
                                           {layers.key, KeysIn(g.dprojected)},
                                           {layers.value, ValuesIn(g.dprojected)}},
                                          arrays.norm1.y, m.y));
  return NormBackward(call, layers.norm1, -1, x, arrays.norm1);
}

absl::Status Llama::AttentionBackward(const Call& call, const BlockArrays& arrays, int s,
                                      void* dprojected) {
  const DecoderMemory& m = memory();
  const void* qkv = nullptr;
  if (!exchanges_heads()) {
    BRIGADE_ASSIGN_OR_RETURN(qkv, Repeat(call, arrays, s));
  }
  void* const dqkv = m.drepeated != nullptr ? m.drepeated : dprojected;
  BRIGADE_RETURN_IF_ERROR(AttendBackward(call, qkv, arrays, s, dqkv));
  if (m.drepeated != nullptr) {
    BRIGADE_RETURN_IF_ERROR(nn::RepeatHeadsBackward(
        {dtype(), call.rows(), shard().heads, shard().key_value_heads, shard().head_width}, dqkv,
        dprojected, call.stream));
  }
  return nn::RotaryBackward(RotatedOf(call), rotary_table(), dprojected, call.stream);
}

}  // namespace brigade::models
