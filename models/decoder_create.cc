// What a decoder is made of: its plan of parameters, its memory by formula, its layers' workspaces;
// and the values that its parameters begin with.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

#include "absl/strings/match.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/decoder.h"
#include "brigade/models/gpt2.h"
#include "brigade/models/llama.h"
#include "brigade/nn/random.h"

namespace brigade::models {
namespace {

// Of a product of the passes, the most that the CPU needs.
int64_t BlasBytes(const DecoderConfig& config, const DecoderOptions& options) {
  const int64_t rows = options.samples * options.positions;
  const DecoderConfig shard = ShardOf(config, options.tensor.shards);
  int64_t most = 0;
  for (const auto& [inputs, outputs] :
       {std::pair<int64_t, int64_t>{config.width, shard.projected_width()},
        {shard.attention_width(), config.width},
        {config.width, shard.inner},
        {config.width, shard.vocabulary}}) {
    most = std::max(most, nn::Blas::WorkspaceBytes(options.dtype, rows, outputs, inputs));
    if (!options.lora.has_value()) continue;
    for (const int64_t side : {inputs, outputs}) {
      most =
          std::max(most, nn::Blas::WorkspaceBytes(options.dtype, rows, options.lora->rank, side));
    }
  }
  return most;
}

nn::Workspace::Sizes WorkspaceSizes(const DecoderConfig& config, const DecoderOptions& options) {
  // Of biases, and twice the width of a layer norm.
  const DecoderConfig shard = ShardOf(config, options.tensor.shards);
  const int64_t sums = std::max({2 * config.width, shard.projected_width(), shard.inner});
  const bool cuts = CutsVocabulary(config, options.tensor.shards);
  const int64_t tokens =
      cuts ? options.tensor.shards.local() * shard.vocabulary : config.vocabulary;
  // A table of positions is then one of tokens.
  const bool looks_up = options.restarts_positions() && config.architecture == Architecture::kGpt2;
  return {.rows = options.samples * options.positions,
          .sums = sums,
          .width = std::max(config.width, options.lora.has_value() ? options.lora->rank : 0),
          .vocabulary = std::max(tokens, looks_up ? config.positions : 0)};
}

nn::RotaryTable::Options TableOptions(const DecoderConfig& config, const DecoderOptions& options) {
  nn::RotaryTable::Options table = {
      .dtype = options.dtype,
      .positions = std::max(options.positions, options.cached_positions),
      .head_width = config.head_width,
      .base = config.rotary_base,
      .scaling = config.rotary_scaling};
  if (!options.context_ranks.share()) return table;
  for (const parallel::PositionRun& run : options.context_ranks.RunsOf(options.whole_positions())) {
    for (int64_t i = 0; i < run.count; ++i) table.rows.push_back(run.global + i);
  }
  return table;
}

bool HasTable(const DecoderConfig& config) { return config.architecture == Architecture::kLlama; }

absl::StatusOr<LoraPlan> PlanOf(const DecoderConfig& config, const DecoderOptions& options) {
  zero::ModelSpec spec = HasTable(config) ? SpecOfLlama(config) : SpecOfGpt2(config);
  for (zero::UnitSpec& unit : spec) {
    for (zero::ParameterSpec& parameter : unit.parameters) {
      parameter.size = 1;
      for (const int64_t extent : parameter.shape) parameter.size *= extent;
      if (options.trainable) parameter.trainable = options.trainable(parameter.name);
    }
  }
  // What is looked up has no few directions in which its gradient is largest.
  for (zero::ParameterSpec& table : spec.front().parameters) table.low_rank = false;
  // A head of its own is one too: a row for each token.
  for (zero::ParameterSpec& parameter : spec.back().parameters) parameter.low_rank = false;
  if (options.lora.has_value()) return PlanLora(config, std::move(spec), *options.lora);
  return PlanWithoutLora(std::move(spec));
}

// Of a base of codes each shard is coded for itself.
void CodeShards(int shards, LoraPlan& plan) {
  size_t number = 0;
  plan.most_dequantized /= shards;
  for (zero::UnitSpec& unit : plan.spec) {
    for (zero::ParameterSpec& parameter : unit.parameters) {
      const ParameterRole& role = plan.roles[number++];
      if (role.kind != ParameterRole::Kind::kInt8Base) continue;
      parameter.size = shards * WordsOf(role.size() / shards);
    }
  }
}

// Of a rank of several: with the cut of the whole one.
struct RankPlan {
  LoraPlan plan;
  ModelCut cut;
};
absl::StatusOr<RankPlan> RankPlanOf(const DecoderConfig& config, const DecoderOptions& options) {
  RankPlan result;
  BRIGADE_ASSIGN_OR_RETURN(result.plan, PlanOf(config, options));
  CodeShards(options.tensor.shards.count, result.plan);
  result.cut = CutOf(config, result.plan, options.tensor.shards);
  if (options.tensor.is_sharded()) {
    result.plan.spec = PartOf(std::move(result.plan.spec), result.cut);
  }
  return result;
}

std::optional<float> InitialOf(const ParameterRole& role) {
  if (!role.is_base() || role.shape.size() != 1) return std::nullopt;
  return absl::EndsWith(role.name, ".bias") ? 0.0f : 1.0f;
}

}  // namespace

Decoder::Decoder(const DecoderConfig& config, const DecoderOptions& options, const LoraPlan& plan,
                 const ModelCut& cut)
    : Model(plan.spec),
      config_(config),
      shard_(ShardOf(config, options.tensor.shards)),
      options_(options),
      cut_(cut),
      modules_(plan.modules),
      roles_(plan.roles),
      module_of_(plan.roles.size(), -1) {
  int next = 0;
  for (const zero::UnitSpec& unit : spec()) {
    first_parameter_.push_back(next);
    next += static_cast<int>(unit.parameters.size());
  }
  for (const ParameterRole& role : roles_) initial_.push_back(InitialOf(role));
  for (size_t m = 0; m < modules_.size(); ++m) {
    const LoraModule& module = modules_[m];
    if (module.is_head()) {
      head_module_ = static_cast<int>(m);
    } else if (!module.is_embedding()) {
      module_of_[static_cast<size_t>(module.weight)] = static_cast<int>(m);
    }
  }
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const DecoderConfig& config,
                                                         const DecoderOptions& options,
                                                         device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(Validate(config, options));
  BRIGADE_ASSIGN_OR_RETURN(const auto rank, RankPlanOf(config, options));
  const auto& [plan, cut] = rank;
  std::unique_ptr<Decoder> decoder;
  if (config.architecture == Architecture::kLlama) {
    decoder = std::make_unique<Llama>(config, options, plan, cut);
  } else {
    decoder = std::make_unique<Gpt2>(config, options, plan, cut);
  }
  BRIGADE_ASSIGN_OR_RETURN(decoder->bytes_, MemoryOf(config, options, context));
  BRIGADE_ASSIGN_OR_RETURN(decoder->activations_, context.Allocate(decoder->bytes_.activations,
                                                                   device::Purpose::kActivations,
                                                                   "activations of the model"));
  decoder->memory_ =
      PlaceDecoder(config, options, plan, context.device(), decoder->activations_.data());
  if (options.stage.has_value() && options.stage->chunks.empty()) return decoder;
  BRIGADE_ASSIGN_OR_RETURN(decoder->blas_, nn::Blas::Create(context, BlasBytes(config, options)));
  if (options.trains) {
    BRIGADE_ASSIGN_OR_RETURN(
        auto workspace,
        nn::Workspace::Create(context, options.dtype, WorkspaceSizes(config, options)));
    decoder->workspace_.emplace(std::move(workspace));
  }
  if (HasTable(config)) {
    BRIGADE_ASSIGN_OR_RETURN(auto table,
                             nn::RotaryTable::Create(context, TableOptions(config, options)));
    decoder->table_.emplace(std::move(table));
  }
  BRIGADE_RETURN_IF_ERROR(decoder->CreateSums(context));
  BRIGADE_RETURN_IF_ERROR(decoder->CreateContext(context));
  return decoder;
}

absl::StatusOr<ModelMemory> Decoder::MemoryOf(const DecoderConfig& config,
                                              const DecoderOptions& options,
                                              const device::Context& context) {
  BRIGADE_RETURN_IF_ERROR(Validate(config, options));
  BRIGADE_ASSIGN_OR_RETURN(const auto rank, RankPlanOf(config, options));
  const LoraPlan& plan = rank.plan;
  ModelMemory memory;
  memory.activations = PlaceDecoder(config, options, plan, context.device(), nullptr).bytes;
  if (options.stage.has_value() && options.stage->chunks.empty()) return memory;
  memory.scratch = nn::Blas::ScratchBytes(context.device(), BlasBytes(config, options)) +
                   SumBytes(config, options);
  if (options.trains) {
    BRIGADE_ASSIGN_OR_RETURN(
        const int64_t bytes,
        nn::Workspace::Bytes(context, options.dtype, WorkspaceSizes(config, options)));
    memory.scratch += bytes;
  }
  if (HasTable(config)) memory.scratch += nn::RotaryTable::Bytes(TableOptions(config, options));
  memory.scratch += DecoderContextBytes(config, options, context.device());
  return memory;
}

void Decoder::Initialize(int parameter, uint64_t seed, absl::Span<float> values) const {
  const auto p = static_cast<size_t>(parameter);
  const ParameterRole& role = roles_[p];
  if (role.is_adapter()) {
    return InitializeAdapter(modules_[static_cast<size_t>(role.module)], role.kind, parameter, seed,
                             values);
  }
  if (initial_[p].has_value()) return std::fill(values.begin(), values.end(), *initial_[p]);
  nn::Random random(seed, static_cast<uint64_t>(parameter));
  const auto fill = [&](absl::Span<float> weights) {
    for (float& value : weights) {
      // Box and Muller 1958.
      const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
      const double angle = 2 * std::numbers::pi * random.Uniform();
      value = static_cast<float>(0.02 * radius * std::cos(angle));
    }
  };
  if (role.kind == ParameterRole::Kind::kBase) return fill(values);
  std::vector<float> weights(static_cast<size_t>(role.size()));
  fill(absl::MakeSpan(weights));
  QuantizeShards(config_, role, cut_.shards.count, weights, values);
}

}  // namespace brigade::models
