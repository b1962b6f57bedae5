#include "brigade/parallel/plan/memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype.h"
#include "brigade/replicas/options.h"
#include "brigade/replicas/round_plan.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::parallel {
namespace {

// Brigade's own default: the unit in use, and the one that is gathered ahead or being reduced.
constexpr int kLiveUnits = 2;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

replicas::OuterOptions RoundsOf(const Execution& execution) {
  return {.period = execution.replica_period,
          .wire = execution.round_bytes == 4 ? precision::DType::kFloat32
                                             : precision::DType::kBFloat16};
}

bool UsesChunksByTurns(ScheduleKind kind) { return kind != ScheduleKind::kInterleaved; }

// The blocks whose weights are in memory at once in ZeRO's stage 3.
int64_t LiveLayers(const Transformer& model, const Configuration& configuration) {
  const int64_t layers = LayersOfStage(model, configuration);
  if (configuration.grid.pipeline == 1) return std::min<int64_t>(kLiveUnits, layers);
  if (UsesChunksByTurns(configuration.schedule.kind)) return layers;
  // The chunk of the forward passes, and that of the backward passes.
  return 2 * layers / configuration.schedule.chunks;
}

zero::ModelSpec UnitsOfStage(const Transformer& model, const Configuration& configuration,
                             bool last_stage) {
  const GridShape& grid = configuration.grid;
  const LayerParameters layer = ParametersOfLayer(model);
  const int64_t layers = last_stage && grid.pipeline > 1 ? LayersOfLastStage(model, configuration)
                                                         : LayersOfStage(model, configuration);
  zero::ModelSpec units;
  const auto add = [&](std::string name, int64_t cut, int64_t whole) {
    units.push_back({name,
                     {{absl::StrCat(name, ".cut"), CeilDivide(cut, grid.tensor)},
                      {absl::StrCat(name, ".whole"), whole}},
                     {}});
  };
  const bool first_stage = !last_stage || grid.pipeline == 1;
  if (first_stage) add("embedding", EmbeddingParameters(model), PositionParameters(model));
  for (int64_t i = 0; i < layers; ++i) add(absl::StrCat("layer", i), layer.cut, layer.whole);
  // On one stage a GPT has one table for both.
  const bool has_head = grid.pipeline > 1 ? last_stage : model.is_llama;
  const int64_t final_norm = last_stage || grid.pipeline == 1 ? 2 * model.width : 0;
  if (has_head || final_norm > 0) {
    add("head", has_head ? EmbeddingParameters(model) : 0, final_norm);
  }
  return units;
}

}  // namespace

double ActivationsOfLayer(const Transformer& model, const GridShape& grid, int micro_batch,
                          Recomputation recomputation, const Execution& execution) {
  const auto h = static_cast<double>(model.width), f = static_cast<double>(model.mlp()),
             kv = static_cast<double>(model.key_value_width()),
             s = static_cast<double>(model.context);
  const double tokens = s * micro_batch / grid.context;
  const double t = grid.tensor;
  const double rows = execution.sequence_parallel ? t : 1;
  if (recomputation == Recomputation::kFull) return 2 * h * tokens / rows;
  // Inputs of two norms, of the products by columns, and two masks of dropout.
  const double whole = 8 * h + (model.is_llama ? 0 : 2 * h);
  // Queries, keys, values, the input of the projection, and what the MLP keeps in the middle.
  const double cut = 2 * h + 4 * kv + 2 * h + (model.is_llama ? 6 : 4) * f;
  // Scores: softmax's result, the mask of dropout, its result.
  const bool keeps_scores =
      !execution.fused_attention && grid.context == 1 && recomputation == Recomputation::kNone;
  const double scores = keeps_scores ? 5 * static_cast<double>(model.heads) * s : 0;
  return tokens * (whole / rows + (cut + scores) / t);
}

absl::StatusOr<ZeroUse> MemoryModel::ZeroOf(const Configuration& configuration, bool last_stage) {
  const GridShape& grid = configuration.grid;
  const bool accumulates = MicroBatches(configuration, execution_) > 1;
  const int ranks = ShardRanks(configuration), groups = ShardGroups(configuration);
  const int64_t layers = LayersOfStage(model_, configuration);
  ZeroUse& use = known_[{grid.tensor, grid.pipeline, configuration.replicas, ranks, groups, layers,
                         configuration.zero_stage, accumulates, last_stage}];
  if (use.buckets > 0) return use;
  zero::ZeroOptions options;
  options.stage = configuration.zero_stage;
  options.micro_batches = accumulates ? 2 : 1;
  options.live_units = kLiveUnits;
  if (configuration.zero_stage < 2) options.accumulation = zero::Accumulation::kAtBoundary;
  BRIGADE_ASSIGN_OR_RETURN(const auto plan,
                           zero::Plan::Create(UnitsOfStage(model_, configuration, last_stage),
                                              {.ranks = ranks,
                                               .dtype = options.dtype,
                                               .bucket_elements = options.bucket_elements,
                                               .shard_groups = groups}));
  if (groups > 1) options.shard_ranks = ranks;
  std::vector<zero::MemoryTerm> terms = zero::MemoryOf(plan, options);
  if (configuration.replicas > 1) {
    BRIGADE_ASSIGN_OR_RETURN(const auto rounds,
                             replicas::MemoryOf(plan, options, RoundsOf(execution_)));
    terms.insert(terms.end(), rounds.begin(), rounds.end());
  }
  for (const zero::MemoryTerm& term : terms) {
    if (term.tier != device::Tier::kDevice) continue;
    const auto bytes = static_cast<double>(term.bytes);
    switch (term.purpose) {
      case device::Purpose::kParameters:
        use.memory.weights += bytes;
        break;
      case device::Purpose::kGradients:
        use.memory.gradients += bytes;
        break;
      case device::Purpose::kOptimizerState:
        use.memory.optimizer_state += bytes;
        break;
      default:
        use.memory.buffers += bytes;
    }
  }
  for (const zero::Bucket& bucket : plan.buckets()) {
    use.elements += static_cast<double>(bucket.size);
  }
  use.buckets = static_cast<int64_t>(plan.buckets().size());
  return use;
}

double MemoryModel::ActivationsOf(const Configuration& configuration, int stage) const {
  const GridShape& grid = configuration.grid;
  const PipelineShape shape = ShapeOf(configuration, execution_);
  const auto layers = static_cast<double>(LayersOfPart(model_, configuration));
  const auto chunks = static_cast<double>(PeakActivations(shape, stage));
  const auto of_layer = [&](Recomputation recomputation) {
    return ActivationsOfLayer(model_, grid, configuration.micro_batch, recomputation, execution_);
  };
  double bytes = chunks * layers * of_layer(configuration.recomputation);
  if (configuration.recomputation == Recomputation::kFull) {
    bytes += of_layer(Recomputation::kNone);
  }
  if (stage == grid.pipeline - 1) {
    const double tokens =
        static_cast<double>(model_.context * configuration.micro_batch) / grid.context;
    bytes += 4 * tokens * static_cast<double>(model_.vocabulary + model_.width) / grid.tensor;
  }
  return bytes;
}

absl::StatusOr<MemoryUse> MemoryModel::MemoryOf(const Configuration& configuration) {
  const GridShape& grid = configuration.grid;
  MemoryUse largest;
  for (const bool last_stage : {false, true}) {
    if (last_stage && grid.pipeline == 1) continue;
    BRIGADE_ASSIGN_OR_RETURN(const ZeroUse use, ZeroOf(configuration, last_stage));
    MemoryUse memory = use.memory;
    memory.activations = ActivationsOf(configuration, last_stage ? grid.pipeline - 1 : 0);
    if (configuration.zero_stage == 3) {
      const int64_t more = LiveLayers(model_, configuration) - kLiveUnits;
      const auto layer = static_cast<double>(ParametersOfLayer(model_).total());
      memory.buffers += 2 * layer / grid.tensor * static_cast<double>(std::max<int64_t>(0, more));
    }
    if (memory.total() > largest.total()) largest = memory;
  }
  return largest;
}

double WeightGathers(const PipelineShape& shape) {
  if (shape.stages == 1) return 2.0 * shape.micro_batches;
  if (UsesChunksByTurns(shape.schedule.kind)) return 1;
  return 2.0 * shape.micro_batches / shape.stages;
}

}  // namespace brigade::parallel
