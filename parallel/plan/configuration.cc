#include "brigade/parallel/plan/configuration.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/options.h"

namespace brigade::parallel {
namespace {

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

int64_t Parts(const Configuration& configuration) {
  return int64_t{configuration.grid.pipeline} * configuration.schedule.chunks;
}

int ReplicaRanks(const Configuration& configuration) {
  return configuration.grid.context * configuration.grid.data / configuration.replicas;
}

absl::Status ValidateSharing(const Configuration& configuration, const Execution& execution) {
  const GridShape& grid = configuration.grid;
  const int replicas = configuration.replicas, shard_ranks = configuration.shard_ranks;
  if (replicas < 1 || grid.data % replicas != 0) {
    return Invalid(replicas, " replicas do not divide ", grid.data, " data ranks");
  }
  if (replicas > 1 && execution.replica_period == 0) {
    return Invalid(replicas, " replicas without the steps between two of their rounds");
  }
  if (replicas > 1 && grid.ranks() > grid.data) {
    return Invalid("ranks share a model or texts; each of ", replicas,
                   " replicas needs ranks with all of it");
  }
  const int ranks = ReplicaRanks(configuration);
  if (shard_ranks >= 0 && (shard_ranks == 0 || ranks % shard_ranks == 0)) return absl::OkStatus();
  return Invalid("groups of ", shard_ranks, " do not divide ", ranks,
                 " ranks with the same weights");
}

}  // namespace

absl::string_view Name(Recomputation recomputation) {
  constexpr absl::string_view kNames[] = {"none", "selective", "full"};
  return kNames[static_cast<size_t>(recomputation)];
}

absl::StatusOr<Recomputation> ParseRecomputation(absl::string_view text) {
  for (const Recomputation each : kRecomputations) {
    if (text == Name(each)) return each;
  }
  return Invalid("\"", text, "\" is none of none, selective and full");
}

absl::string_view Name(ContextMethod method) {
  return method == ContextMethod::kRing ? "ring" : "ulysses";
}

absl::StatusOr<ContextMethod> ParseContextMethod(absl::string_view text) {
  for (const ContextMethod each : {ContextMethod::kRing, ContextMethod::kUlysses}) {
    if (text == Name(each)) return each;
  }
  return Invalid("\"", text, "\" is neither ring nor ulysses");
}

absl::Status Validate(const Execution& execution) {
  if (execution.batch < 1 || execution.batch > int64_t{1} << 20) {
    return Invalid("the batch is ", execution.batch, "; it must be 1 to ", 1 << 20);
  }
  if (execution.tensor_sum_bytes != 2 && execution.tensor_sum_bytes != 4) {
    return Invalid("sums over tensor ranks have ", execution.tensor_sum_bytes,
                   " bytes; they must have 2 or 4");
  }
  if (execution.replica_period < 0) {
    return Invalid("the period of replicas is ", execution.replica_period,
                   " steps; it must be 0 or more");
  }
  if (execution.round_bytes != 2 && execution.round_bytes != 4) {
    return Invalid("rounds have ", execution.round_bytes, " bytes; they must have 2 or 4");
  }
  if (!(execution.reserved_bytes >= 0)) {
    return Invalid("the reserved memory is ", execution.reserved_bytes, "; it must be 0 or more");
  }
  return absl::OkStatus();
}

int ShardRanks(const Configuration& configuration) {
  return configuration.shard_ranks == 0 ? ReplicaRanks(configuration) : configuration.shard_ranks;
}

int ShardGroups(const Configuration& configuration) {
  return ReplicaRanks(configuration) / ShardRanks(configuration);
}

int64_t MicroBatches(const Configuration& configuration, const Execution& execution) {
  return execution.batch / (int64_t{configuration.grid.data} * configuration.micro_batch);
}

PipelineShape ShapeOf(const Configuration& configuration, const Execution& execution) {
  return {configuration.schedule, configuration.grid.pipeline,
          static_cast<int>(MicroBatches(configuration, execution))};
}

int64_t LayersOfPart(const Transformer& model, const Configuration& configuration) {
  const int64_t parts = Parts(configuration);
  return (model.layers + parts - 1) / parts;
}

int64_t LayersOfStage(const Transformer& model, const Configuration& configuration) {
  const int64_t layers = configuration.schedule.chunks * LayersOfPart(model, configuration);
  return std::min(layers, model.layers);
}

int64_t LayersOfLastStage(const Transformer& model, const Configuration& configuration) {
  const bool fills = model.layers % Parts(configuration) == 0;
  return LayersOfStage(model, configuration) - (fills ? 0 : 1);
}

absl::Status Validate(const Configuration& configuration, const Transformer& model,
                      const Execution& execution) {
  const GridShape& grid = configuration.grid;
  BRIGADE_RETURN_IF_ERROR(Validate(grid, grid.ranks()));
  if (configuration.zero_stage < 0 || configuration.zero_stage >= zero::kStages) {
    return Invalid("the ZeRO stage is ", configuration.zero_stage, "; it must be 0 to 3");
  }
  const int64_t key_value_heads = model.key_value_heads > 0 ? model.key_value_heads : model.heads;
  if (model.heads % grid.tensor != 0 || key_value_heads % grid.tensor != 0 ||
      model.mlp() % grid.tensor != 0) {
    return Invalid(grid.tensor, " tensor ranks do not divide ", model.heads, " heads, ",
                   key_value_heads, " of keys and values, and an MLP of ", model.mlp());
  }
  if (model.context % (2 * int64_t{grid.context}) != 0 && grid.context > 1) {
    return Invalid(grid.context, " context ranks do not divide a context of ", model.context,
                   " into two parts each");
  }
  if (execution.context_method == ContextMethod::kUlysses &&
      (model.heads / grid.tensor % grid.context != 0 ||
       key_value_heads / grid.tensor % grid.context != 0)) {
    return Invalid(grid.context, " context ranks do not divide the ", key_value_heads / grid.tensor,
                   " heads of a tensor rank, as ulysses needs");
  }
  // The embedding and the logits may be parts of their own.
  if (const int64_t parts = Parts(configuration); parts > 1 && parts > model.layers + 2) {
    return Invalid(grid.pipeline, " stages of ", configuration.schedule.chunks,
                   " chunks are more than ", model.layers, " layers, embedding and logits");
  }
  if (configuration.micro_batch < 1 ||
      execution.batch % (int64_t{grid.data} * configuration.micro_batch) != 0) {
    return Invalid("micro-batches of ", configuration.micro_batch, " on ", grid.data,
                   " data ranks do not divide a batch of ", execution.batch);
  }
  BRIGADE_RETURN_IF_ERROR(ValidateSharing(configuration, execution));
  return Validate(ShapeOf(configuration, execution));
}

std::string ToString(const Configuration& configuration) {
  const GridShape& grid = configuration.grid;
  std::string text = absl::StrCat(
      "t ", grid.tensor, ", c ", grid.context, ", d ", grid.data, ", p ", grid.pipeline, ", ",
      ToString(configuration.schedule), ", ZeRO ", configuration.zero_stage, ", recompute ",
      Name(configuration.recomputation), ", micro-batch ", configuration.micro_batch);
  if (configuration.replicas > 1) {
    absl::StrAppend(&text, ", ", configuration.replicas, " replicas");
  }
  if (configuration.shard_ranks > 0) {
    absl::StrAppend(&text, ", groups of ", configuration.shard_ranks);
  }
  return text;
}

}  // namespace brigade::parallel
