#include "brigade/models/llama.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/grouped_heads.h"
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

Llama::Llama(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan)
    : Decoder(config, options, plan) {}

Llama::Layers Llama::LayersOf(int first_parameter) const {
  const DecoderConfig& c = config();
  const int64_t keys = c.key_value_heads * c.head_width;
  int next = first_parameter;
  // In the order of SpecOfLlama.
  const auto linear = [&](int64_t outputs, int64_t inputs, bool bias, int64_t leading = 0) {
    LinearLayer layer = {
        .weight = next++, .inputs = inputs, .outputs = outputs, .leading = leading};
    if (bias) layer.bias = next++;
    return layer;
  };
  Layers layers;
  layers.query = linear(c.attention_width(), c.width, c.attention_bias, c.projected_width());
  layers.key = linear(keys, c.width, c.attention_bias, c.projected_width());
  layers.value = linear(keys, c.width, c.attention_bias, c.projected_width());
  layers.out = linear(c.width, c.attention_width(), c.attention_bias);
  layers.gate = linear(c.inner, c.width, c.mlp_bias, 2 * c.inner);
  layers.up = linear(c.inner, c.width, c.mlp_bias, 2 * c.inner);
  layers.down = linear(c.width, c.inner, c.mlp_bias);
  layers.norm1 = next++;
  layers.norm2 = next++;
  return layers;
}

char* Llama::KeysIn(void* projected) const {
  return static_cast<char*>(projected) + Bytes(config().attention_width());
}

char* Llama::ValuesIn(void* projected) const {
  return KeysIn(projected) + Bytes(config().key_value_heads * config().head_width);
}

char* Llama::UpIn(void* expanded) const {
  return static_cast<char*>(expanded) + Bytes(config().inner);
}

absl::StatusOr<const void*> Llama::Repeat(const Call& call, const BlockArrays& arrays) {
  if (memory().repeated == nullptr) return arrays.projected;
  BRIGADE_RETURN_IF_ERROR(nn::RepeatHeads(
      {dtype(), call.rows(), config().heads, config().key_value_heads, config().head_width},
      arrays.projected, memory().repeated, call.stream));
  return memory().repeated;
}

nn::RotaryShape Llama::RotatedOf(const Call& call) const {
  return {.dtype = dtype(),
          .batch = call.ids.batch(),
          .context = call.ids.context(),
          .heads = config().heads + config().key_value_heads,
          .columns = config().projected_width(),
          .first_position = call.first.value_or(0),
          .segments = PositionsOf(call)};
}

absl::Status Llama::ForwardBlock(const Call& call, int first_parameter, const void* x,
                                 const BlockArrays& arrays, void* out) {
  const Layers layers = LayersOf(first_parameter);
  const int64_t stream_bytes = Bytes(call.rows() * config().width);
  BRIGADE_RETURN_IF_ERROR(Norm(call, layers.norm1, -1, x, arrays.norm1));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.query, arrays.norm1.y, arrays.projected));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.key, arrays.norm1.y, KeysIn(arrays.projected)));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.value, arrays.norm1.y, ValuesIn(arrays.projected)));
  BRIGADE_RETURN_IF_ERROR(
      nn::Rotary(RotatedOf(call), rotary_table(), arrays.projected, call.stream));
  if (call.first.has_value()) {
    BRIGADE_RETURN_IF_ERROR(CachedAttention(call, arrays));
  } else {
    BRIGADE_ASSIGN_OR_RETURN(const void* const qkv, Repeat(call, arrays));
    BRIGADE_RETURN_IF_ERROR(Attend(call, qkv, arrays));
  }
  BRIGADE_RETURN_IF_ERROR(call.stream.Copy(arrays.middle, x, stream_bytes));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.out, arrays.heads, arrays.middle, true));
  BRIGADE_RETURN_IF_ERROR(Norm(call, layers.norm2, -1, arrays.middle, arrays.norm2));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.gate, arrays.norm2.y, arrays.expanded));
  BRIGADE_RETURN_IF_ERROR(Linear(call, layers.up, arrays.norm2.y, UpIn(arrays.expanded)));
  BRIGADE_RETURN_IF_ERROR(nn::Swiglu({dtype(), call.rows(), config().inner}, arrays.expanded,
                                     arrays.activated, call.stream));
  if (out == nullptr) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(call.stream.Copy(out, arrays.middle, stream_bytes));
  return Linear(call, layers.down, arrays.activated, out, true);
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
    BRIGADE_RETURN_IF_ERROR(nn::SwigluBackward({dtype(), call.rows(), config().inner},
                                               arrays.expanded, g.dactivated, {dexpanded},
                                               call.stream));
  }
  BRIGADE_RETURN_IF_ERROR(LinearBackward(call, layers.gate, arrays.norm2.y, dexpanded, {m.y}));
  BRIGADE_RETURN_IF_ERROR(
      LinearBackward(call, layers.up, arrays.norm2.y, UpIn(dexpanded), {m.y, true}));
  BRIGADE_RETURN_IF_ERROR(NormBackward(call, layers.norm2, -1, arrays.middle, arrays.norm2));
  BRIGADE_RETURN_IF_ERROR(Keep(call, g.dmiddle));
  BRIGADE_RETURN_IF_ERROR(LinearBackward(call, layers.out, arrays.heads, g.dmiddle, {m.dheads}));
  if (inputs) BRIGADE_RETURN_IF_ERROR(AttentionBackward(call, arrays, g.dprojected));
  BRIGADE_RETURN_IF_ERROR(LinearBackward(call, layers.query, arrays.norm1.y, g.dprojected, {m.y}));
  BRIGADE_RETURN_IF_ERROR(
      LinearBackward(call, layers.key, arrays.norm1.y, KeysIn(g.dprojected), {m.y, true}));
  BRIGADE_RETURN_IF_ERROR(
      LinearBackward(call, layers.value, arrays.norm1.y, ValuesIn(g.dprojected), {m.y, true}));
  return NormBackward(call, layers.norm1, -1, x, arrays.norm1);
}

absl::Status Llama::AttentionBackward(const Call& call, const BlockArrays& arrays,
                                      void* dprojected) {
  const DecoderMemory& m = memory();
  const void* qkv = nullptr;
  if (!exchanges_heads()) {
    BRIGADE_ASSIGN_OR_RETURN(qkv, Repeat(call, arrays));
  }
  void* const dqkv = m.drepeated != nullptr ? m.drepeated : dprojected;
  BRIGADE_RETURN_IF_ERROR(AttendBackward(call, qkv, arrays, dqkv));
  if (m.drepeated != nullptr) {
    BRIGADE_RETURN_IF_ERROR(nn::RepeatHeadsBackward(
        {dtype(), call.rows(), config().heads, config().key_value_heads, config().head_width}, dqkv,
        dprojected, call.stream));
  }
  return nn::RotaryBackward(RotatedOf(call), rotary_table(), dprojected, call.stream);
}

}  // namespace brigade::models
