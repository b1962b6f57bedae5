#include "brigade/examples/gpt/pipeline_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/counted.h"
#include "brigade/recompute/policy.h"
#include "brigade/zero/plan/memory_model.h"

namespace brigade::gpt {
namespace {

using By = parallel::PartitionChoice::By;

// Of this rank's shards. With the tokens in the embedding and in the head.
std::vector<int64_t> ParametersOfStages(const PassShape& shape) {
  const auto size = [&](int parameter) {
    return ShardOf(shape.model, parameter).local_size(shape.shards());
  };
  std::vector<int64_t> stages = {size(kTokens) + size(kPositions)};
  for (int64_t layer = 0; layer < shape.model.layers; ++layer) {
    int64_t& block = stages.emplace_back(0);
    for (int p = 0; p < kBlockParameters; ++p) {
      block += size(BlockParameter(layer, static_cast<Block>(p)));
    }
  }
  stages.push_back(size(kTokens) + size(HeadParameter(shape.model, kFinalNormWeight)) +
                   size(HeadParameter(shape.model, kFinalNormBias)));
  return stages;
}

// Of weights, gradients and optimizer state, on the device.
double StateBytes(const train::Job& job, double parameters) {
  const zero::ZeroOptions& zero = job.config.zero;
  const int64_t replicas = int64_t{job.config.grid.data} * job.config.grid.context;
  const auto bytes = static_cast<double>(precision::SizeOf(zero.dtype));
  if (zero.offload.parameters != device::Tier::kDevice) return 0;
  const bool is_papers = bytes == 2 && optim::IsAdam(zero.optimizer.kind);
  if (is_papers && !zero.offload.enabled()) {
    return zero::PaperBytes(parameters, replicas, zero.stage);
  }
  return parameters * bytes / (zero.stage == 3 ? static_cast<double>(replicas) : 1);
}

// What of a stage's activations is kept from its forward pass to its backward pass, at least.
int64_t KeptBytes(const recompute::Stage& stage, const recompute::Policy& policy) {
  using Kind = recompute::Policy::Kind;
  switch (policy.kind) {
    case Kind::kNone:
      return stage.options[0].saved_bytes;
    case Kind::kSelective:
      return std::min_element(
                 stage.options.begin(), stage.options.end(),
                 [](const auto& a, const auto& b) { return a.saved_bytes < b.saved_bytes; })
          ->saved_bytes;
    case Kind::kBlock:
      // Blocks alone have a choice.
      return policy.stash == recompute::StashTier::kNone && stage.options.size() > 1
                 ? stage.gradient_bytes
                 : 0;
    case Kind::kSegments:
    case Kind::kBudget:
      break;
  }
  return 0;
}

}  // namespace

std::vector<double> StageWeights(const PassShape& shape, By by, const PassCosts& costs) {
  if (by == By::kParameters) {
    const std::vector<int64_t> parameters = ParametersOfStages(shape);
    return {parameters.begin(), parameters.end()};
  }
  const PassCosts of = by == By::kFlops ? CountOperations(shape) : costs;
  const auto both = [](const StageTimes& times) { return times.forward + times.backward; };
  std::vector<double> weights(static_cast<size_t>(StagesOf(shape.model)), both(of.block));
  weights.front() = both(of.embedding);
  weights.back() = both(of.head);
  return weights;
}

std::optional<parallel::MemoryLimit> MemoryLimitOf(const train::Job& job, const PassShape& shape,
                                                   const parallel::PipelineShape& pipeline) {
  if (job.device_limit_bytes == 0 || pipeline.stages == 1) return std::nullopt;
  // [stage of the model].
  std::vector<int64_t> state, kept;
  for (const int64_t parameters : ParametersOfStages(shape)) {
    state.push_back(static_cast<int64_t>(StateBytes(job, static_cast<double>(parameters))));
  }
  for (const recompute::Stage& stage : ActivationChain(shape).stages) {
    kept.push_back(KeptBytes(stage, job.config.recompute));
  }
  return parallel::MemoryLimit{.bytes =
                                   [=](int layer, int part) {
                                     const int stage = parallel::PlaceOf(pipeline, part).stage;
                                     const int64_t chunks = pipeline.schedule.chunks;
                                     const int64_t micro_batches =
                                         parallel::PeakActivations(pipeline, stage) / chunks;
                                     const auto i = static_cast<size_t>(layer);
                                     return state[i] + micro_batches * kept[i];
                                   },
                               .limit_bytes = std::vector<int64_t>(
                                   static_cast<size_t>(pipeline.stages), job.device_limit_bytes)};
}

absl::StatusOr<std::vector<int>> PartsOf(const PassShape& shape,
                                         const parallel::PipelineShape& pipeline,
                                         const parallel::PartitionChoice& partition,
                                         const PassCosts& costs,
                                         const parallel::MemoryLimit* limit) {
  // Of boundaries that are given the number of stages alone counts.
  const std::vector<double> weights =
      partition.by == By::kBoundaries
          ? std::vector<double>(static_cast<size_t>(StagesOf(shape.model)))
          : StageWeights(shape, partition.by, costs);
  return train::PartsOf(weights, pipeline, partition, limit);
}

absl::Status CheckParts(const ModelOptions& model, const train::TrainConfig& config) {
  return train::CheckParts(
      StagesOf(model),
      absl::StrCat("embedding, ", device::Counted(model.layers, "block"), " and head"), config);
}

}  // namespace brigade::gpt
