#include "brigade/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/gpt2.h"
#include "brigade/models/llama.h"
#include "brigade/nn/cached_attention.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/linear.h"
#include "brigade/nn/random.h"
#include "brigade/nn/rms_norm.h"

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

absl::Status Decoder::Check(int unit, const Batch& batch, bool trains) const {
  BRIGADE_RETURN_IF_ERROR(CheckChunk(unit, batch.chunk, trains));
  if (batch.samples < 1 || batch.samples > options_.samples || batch.positions < 1 ||
      batch.positions > options_.positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.samples, " samples of ", batch.positions,
        " positions; the model has memory for ", options_.samples, " of ", options_.positions));
  }
  if (options_.context_ranks.share() && batch.positions != options_.positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.positions, " positions, where each of ",
                     options_.context_ranks.size(), " context ranks has ", options_.positions));
  }
  if (batch.inputs == nullptr) return absl::InvalidArgumentError("a batch without inputs");
  if (!trains) return absl::OkStatus();
  if (!options_.trains) {
    return absl::InvalidArgumentError("a backward pass of a model without memory for it");
  }
  if (!applies_adapters_) {
    return absl::FailedPreconditionError("a backward pass of adapters that are merged");
  }
  if (batch.targets != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("a backward pass of a batch without targets");
}

Decoder::LinearLayer Decoder::HeadLayer() const {
  const int tokens = 0;
  // Behind its norm.
  const int own =
      FirstParameter(head_unit()) + (config_.architecture == Architecture::kGpt2 ? 2 : 1);
  return {.weight = config_.tied ? tokens : own,
          .cut = cuts_vocabulary() ? Cut::kColumns : Cut::kNone,
          .inputs = config_.width,
          .outputs = shard_.vocabulary,
          .is_head = true};
}

nn::TokenIds Decoder::IdsOf(const Batch& batch) const {
  return nn::TokenIds::WithLabels(static_cast<const int32_t*>(batch.inputs),
                                  static_cast<const int32_t*>(batch.targets), batch.samples,
                                  batch.positions, config_.vocabulary,
                                  (options_.segments ? 3 : 1) * batch.positions);
}

nn::Segments Decoder::SegmentsOf(const Batch& batch) const {
  if (!options_.segments) return {};
  const auto* const positions = static_cast<const int32_t*>(batch.inputs) + batch.positions;
  return {positions, positions + batch.positions, 3 * batch.positions};
}

std::vector<parallel::PassCollective> Decoder::CollectivesOf(const Batch& batch) const {
  std::vector<parallel::PassCollective> all = TensorCollectives(batch);
  for (const parallel::PassCollective& each : ContextCollectives(batch)) all.push_back(each);
  return all;
}

nn::AttentionShape Decoder::AttentionOf(const Call& call) const {
  return {dtype(),      call.ids.batch(),         call.ids.context(),
          shard_.heads, shard_.attention_width(), call.segments};
}

nn::Segments Decoder::PositionsOf(const Call& call) const {
  return options_.restart_positions ? call.segments : nn::Segments();
}

nn::TokenIds Decoder::PositionIdsOf(const Call& call) const {
  return nn::TokenIds::WithLabels(call.segments.positions, nullptr, call.ids.batch(),
                                  call.ids.context(), config_.positions, call.segments.stride);
}

absl::Status Decoder::CachedAttention(const Call& call, const BlockArrays& arrays) {
  const auto layer = static_cast<size_t>(call.layer);
  return nn::CachedAttention({.dtype = dtype(),
                              .samples = call.ids.batch(),
                              .capacity = options_.cached_positions,
                              .first = *call.first,
                              .count = call.ids.context(),
                              .heads = config_.heads,
                              .key_value_heads = config_.key_value_heads,
                              .head_width = config_.head_width},
                             arrays.projected, memory_.cached_keys[layer],
                             memory_.cached_values[layer], arrays.heads, call.stream);
}

absl::Status Decoder::Continue(const Batch& batch, int64_t first, zero::ParameterSource& source,
                               device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(0, batch, false));
  if (first < 0 || first > kept_ || first > options_.cached_positions - batch.positions) {
    return absl::InvalidArgumentError(absl::StrCat(batch.positions, " positions behind ", first,
                                                   "; the model keeps ", kept_, " and can keep ",
                                                   options_.cached_positions));
  }
  if (first > 0 && batch.samples != kept_samples_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "positions of ", batch.samples, " samples; the model keeps those of ", kept_samples_));
  }
  first_ = first;
  const absl::Status status = Forward(*this, batch, nullptr, source, stream);
  first_.reset();
  // What an error has left is not to be used.
  kept_ = status.ok() ? first + batch.positions : 0;
  kept_samples_ = batch.samples;
  return status;
}

absl::Status Decoder::ForwardUnit(int unit, const Batch& batch, void* losses,
                                  UnitParameters& parameters, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(unit, batch, false));
  const nn::TokenIds ids = IdsOf(batch);
  const nn::Segments segments = SegmentsOf(batch);
  Call call = CallOf(unit, batch, ids, segments, parameters, stream);
  call.first = first_;
  const int first = FirstParameter(unit);
  if (unit == 0) {
    const bool learned = config_.architecture == Architecture::kGpt2;
    const void* const tokens = parameters.weights(first);
    const void* const table = parameters.weights(learned ? first + 1 : -1);
    BRIGADE_RETURN_IF_ERROR(parameters.status());
    BRIGADE_ASSIGN_OR_RETURN(const void* const positions, PositionRows(call, table, config_.width));
    void* const x = OutputOf(call);
    BRIGADE_RETURN_IF_ERROR(LookUp(call, config_.width, tokens, positions, x));
    return AddEmbeddingAdapters(call, x);
  }
  const void* const x = InputOf(call);
  if (unit < head_unit()) return ForwardBlock(call, first, x, ArraysOf(call), OutputOf(call));
  const int bias = config_.architecture == Architecture::kGpt2 ? first + 1 : -1;
  const DecoderSlot& slot = *call.slot;
  BRIGADE_RETURN_IF_ERROR(Norm(call, first, bias, x, slot.final_norm));
  BRIGADE_RETURN_IF_ERROR(Linear(call, HeadLayer(), slot.final_norm.y, slot.logits));
  return losses == nullptr ? absl::OkStatus() : Losses(call, losses);
}

absl::Status Decoder::RecomputeUnit(int unit, const Batch& batch, UnitParameters& parameters,
                                    device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(unit, batch, true));
  if (!options_.recompute || unit == 0 || unit == head_unit()) return absl::OkStatus();
  const nn::TokenIds ids = IdsOf(batch);
  const nn::Segments segments = SegmentsOf(batch);
  const Call call = CallOf(unit, batch, ids, segments, parameters, stream);
  return ForwardBlock(call, FirstParameter(unit), InputOf(call), ArraysOf(call), nullptr);
}

absl::Status Decoder::BackwardEmbedding(const Call& call) {
  if (options_.lora.has_value()) {
    return call.computes_inputs() ? EmbeddingAdaptersBackward(call) : DeliverGradients(call);
  }
  if (!call.computes_weights()) return Keep(call, call.deferred->dembedding);
  const void* const dx = call.computes_inputs() ? call.dx : call.deferred->dembedding;
  const int first = FirstParameter(0);
  const bool learned = config_.architecture == Architecture::kGpt2;
  const nn::Gradient tokens = call.parameters.gradient(first);
  const nn::Gradient positions = call.parameters.gradient(learned ? first + 1 : -1);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  if (tokens.data == nullptr && positions.data == nullptr) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(const nn::TokenIds ids, WindowOf(call.ids));
  if (learned && options_.restarts_positions()) {
    BRIGADE_RETURN_IF_ERROR(nn::EmbeddingBackward(ids, dtype(), config_.width, dx, tokens, {},
                                                  workspace(), call.stream));
    return nn::EmbeddingBackward(PositionIdsOf(call), dtype(), config_.width, dx, positions, {},
                                 workspace(), call.stream);
  }
  return MakePositionRows(call, positions, config_.width, [&](nn::Gradient rows) {
    return nn::EmbeddingBackward(ids, dtype(), config_.width, dx, tokens, rows, workspace(),
                                 call.stream);
  });
}

absl::Status Decoder::BackwardUnit(int unit, const Batch& batch, const float* seed,
                                   UnitParameters& parameters, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(Check(unit, batch, true));
  const nn::TokenIds ids = IdsOf(batch);
  const nn::Segments segments = SegmentsOf(batch);
  const Call call = CallOf(unit, batch, ids, segments, parameters, stream);
  const ChunkPass& chunk = batch.chunk;
  if (call.computes_inputs() && chunk.is_last(unit) && chunk.output_gradient != nullptr &&
      chunk.output_gradient != call.dx) {
    BRIGADE_RETURN_IF_ERROR(
        stream.Copy(call.dx, chunk.output_gradient, Bytes(call.rows() * config_.width)));
  }
  if (unit == 0) return BackwardEmbedding(call);
  const int first = FirstParameter(unit);
  const void* const x = InputOf(call);
  if (unit < head_unit()) {
    BRIGADE_RETURN_IF_ERROR(BackwardBlock(call, first, x, ArraysOf(call)));
  } else {
    const DecoderSlot& slot = *call.slot;
    const bool learned = config_.architecture == Architecture::kGpt2;
    if (call.computes_inputs()) BRIGADE_RETURN_IF_ERROR(LossesBackward(call, seed));
    const LinearLayer layer = HeadLayer();
    BRIGADE_RETURN_IF_ERROR(
        ColumnsBackward(call, {{layer, slot.logits}}, slot.final_norm.y, memory_.y));
    BRIGADE_RETURN_IF_ERROR(NormBackward(call, first, learned ? first + 1 : -1, x, slot.final_norm,
                                         /*accumulate=*/false));
  }
  return call.computes_inputs() ? absl::OkStatus() : DeliverGradients(call);
}

absl::Status Decoder::Linear(const Call& call, const LinearLayer& layer, const void* x, void* y,
                             bool accumulate) {
  const void* const bias = call.parameters.weights(layer.bias);
  if (is_sharded() && layer.cut == Cut::kRows) {
    BRIGADE_RETURN_IF_ERROR(SumRows(call, layer, x, y));
    return AddAdapter(call, layer, x, y);
  }
  for (int s = 0; s < ShardsOf(layer); ++s) {
    BRIGADE_ASSIGN_OR_RETURN(const void* const weight, WeightOf(call, layer, s));
    BRIGADE_RETURN_IF_ERROR(nn::Linear({.dtype = dtype(),
                                        .x = x,
                                        .weight = weight,
                                        .rows = call.rows(),
                                        .inputs = layer.inputs,
                                        .outputs = layer.outputs,
                                        .input_major = layer.input_major,
                                        .y_leading = layer.leading,
                                        .accumulate = accumulate},
                                       OfShard(bias, s, layer.outputs),
                                       OfShard(y, s, call.rows() * layer.columns()), blas(),
                                       call.stream));
  }
  return AddAdapter(call, layer, x, y);
}

absl::Status Decoder::LinearBackward(const Call& call, const LinearLayer& layer, const void* x,
                                     const void* dy, nn::Gradient dx) {
  if (!call.computes_inputs()) dx = {};
  nn::Gradient dweight, dbias;
  if (call.computes_weights()) {
    dweight = call.parameters.gradient(layer.weight);
    dbias = call.parameters.gradient(layer.bias);
  }
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  // Cut by rows, if at all: of one dy, whose bias is whole.
  for (int s = 0; s < ShardsOf(layer); ++s) {
    const int64_t in_x = call.rows() * layer.inputs;
    const void* weight = nullptr;
    if (call.computes_inputs()) {
      BRIGADE_ASSIGN_OR_RETURN(weight, WeightOf(call, layer, s));
    }
    BRIGADE_RETURN_IF_ERROR(
        nn::LinearBackward({.dtype = dtype(),
                            .x = OfShard(x, s, in_x),
                            .weight = weight,
                            .rows = call.rows(),
                            .inputs = layer.inputs,
                            .outputs = layer.outputs,
                            .input_major = layer.input_major,
                            .y_leading = layer.leading},
                           dy, {OfShard(dx.data, s, in_x), dx.accumulate},
                           {OfShard(dweight.data, s, layer.size()), dweight.accumulate},
                           s == 0 ? dbias : nn::Gradient(), blas(), workspace(), call.stream));
  }
  return call.computes_inputs() ? AdapterBackward(call, layer, x, dy, dx) : absl::OkStatus();
}

absl::Status Decoder::Norm(const Call& call, int weight, int bias, const void* x,
                           const NormArrays& norm) {
  const void* const weights = call.parameters.weights(weight);
  const void* const biases = call.parameters.weights(bias);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  if (bias < 0) {
    return nn::RmsNorm(
        {dtype(), x, weights, norm.inverse, call.rows(), config_.width, config_.norm_epsilon},
        norm.y, call.stream);
  }
  return nn::LayerNorm({dtype(), x, weights, norm.mean, norm.inverse, call.rows(), config_.width,
                        config_.norm_epsilon},
                       biases, norm.y, call.stream);
}

absl::Status Decoder::NormBackward(const Call& call, int weight, int bias, const void* x,
                                   const NormArrays& norm, bool accumulate) {
  if (!call.computes_inputs()) return absl::OkStatus();
  const void* const weights = call.parameters.weights(weight);
  const nn::Gradient dweight = GradientOfFirstHalf(call, weight);
  const nn::Gradient dbias = GradientOfFirstHalf(call, bias);
  BRIGADE_RETURN_IF_ERROR(call.parameters.status());
  const nn::Gradient dx = {call.dx, accumulate};
  if (bias < 0) {
    return nn::RmsNormBackward(
        {dtype(), x, weights, norm.inverse, call.rows(), config_.width, config_.norm_epsilon},
        memory_.y, dx, dweight, workspace(), call.stream);
  }
  return nn::LayerNormBackward({dtype(), x, weights, norm.mean, norm.inverse, call.rows(),
                                config_.width, config_.norm_epsilon},
                               memory_.y, dx, dweight, dbias, workspace(), call.stream);
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
