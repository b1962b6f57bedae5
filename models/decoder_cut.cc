// How the parameters of a decoder are cut over tensor shards.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "brigade/models/decoder_memory.h"

namespace brigade::models {
namespace {

// Queries, keys and values, or what is inside of the MLP, on the side of a product's outputs; and
// on that of its inputs.
constexpr const char* kColumns[] = {".attn.c_attn.", ".mlp.c_fc.",  ".q_proj.", ".k_proj.",
                                    ".v_proj.",      ".gate_proj.", ".up_proj."};
constexpr const char* kRows[] = {".attn.c_proj.", ".mlp.c_proj.", ".o_proj.", ".down_proj."};

bool IsOneOf(const std::string& name, absl::Span<const char* const> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return absl::StrContains(name, part); });
}

parallel::Shard ShardOfBase(const DecoderConfig& config, const ParameterRole& role,
                            const parallel::TensorShards& shards) {
  parallel::Shard shard = {.shape = role.shape};
  // Matrices are [outputs, inputs], GPT-2's [inputs, outputs].
  const bool input_major = config.architecture == Architecture::kGpt2;
  const bool is_matrix = role.shape.size() == 2;
  if (role.name == "transformer.wte.weight" || role.name == "model.embed_tokens.weight" ||
      role.name == "lm_head.weight") {
    if (CutsVocabulary(config, shards)) shard.axis = 0;
  } else if (IsOneOf(role.name, kColumns)) {
    shard.axis = is_matrix && input_major ? 1 : 0;
    if (absl::StrContains(role.name, ".attn.c_attn.")) shard.parts = 3;
  } else if (is_matrix && IsOneOf(role.name, kRows)) {
    shard.axis = input_major ? 0 : 1;
  }
  return shard;
}

// `layer`: how the adapter's own layer is cut.
parallel::Shard ShardOfAdapter(const DecoderConfig& config, const LoraModule& module,
                               const ParameterRole& layer, bool is_a,
                               const std::vector<int64_t>& shape,
                               const parallel::TensorShards& shards) {
  parallel::Shard shard = {.shape = shape};
  const parallel::Shard of_layer = ShardOfBase(config, layer, shards);
  if (!of_layer.axis.has_value()) return shard;
  if (module.is_embedding()) {
    // [vocabulary, rank].
    if (is_a) shard.axis = 0;
  } else if (IsOneOf(layer.name, kRows)) {
    if (is_a) shard.axis = 1;
  } else if (!is_a) {
    shard.axis = 0;
    shard.parts = of_layer.parts;
  }
  return shard;
}

}  // namespace

ModelCut CutOf(const DecoderConfig& config, const LoraPlan& whole,
               const parallel::TensorShards& shards) {
  ModelCut cut = {.shards = shards};
  for (const zero::UnitSpec& unit : whole.spec) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      const ParameterRole& role = whole.roles[cut.parameters.size()];
      if (role.kind == ParameterRole::Kind::kInt8Base) {
        // The codes of each shard are by themselves: of as many bytes as those of another number of
        // shards, which are not to be taken for them.
        parallel::Shard& words = cut.parameters.emplace_back();
        words.shape = {parameter.size};
        if (shards.count > 1) {
          words = {.shape = {shards.count, parameter.size / shards.count}, .axis = 0};
        }
        continue;
      }
      if (role.is_base()) {
        cut.parameters.push_back(ShardOfBase(config, role, shards));
        continue;
      }
      const LoraModule& module = whole.modules[static_cast<size_t>(role.module)];
      cut.parameters.push_back(
          ShardOfAdapter(config, module, whole.roles[static_cast<size_t>(module.weight)],
                         role.kind == ParameterRole::Kind::kAdapterA, parameter.shape, shards));
    }
  }
  return cut;
}

void QuantizeShards(const DecoderConfig& config, const ParameterRole& role, int shards,
                    absl::Span<const float> values, absl::Span<float> words) {
  if (shards == 1) return QuantizeToWords(values, words);
  const parallel::TensorShards all = {.count = shards};
  std::vector<float> ordered(values.size());
  CutValues(ShardOfBase(config, role, all), all, values, absl::MakeSpan(ordered));
  const absl::Span<const float> from = ordered;
  const size_t numbers = values.size() / static_cast<size_t>(shards);
  const size_t of_shard = words.size() / static_cast<size_t>(shards);
  for (size_t s = 0; s < static_cast<size_t>(shards); ++s) {
    QuantizeToWords(from.subspan(s * numbers, numbers), words.subspan(s * of_shard, of_shard));
  }
}

}  // namespace brigade::models
