#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/shard.h"
#include "brigade/parallel/tensor/row_pieces.h"
#include "brigade/train/config/config_rules.h"

namespace brigade::train {
namespace {

Rules TensorRules(const Together& together) {
  const Said& said = together.said;
  const Settings& s = together.settings;
  const Sharing& sharing = together.sharing;
  constexpr char kSizes[] =
      "tensor_parallel.autotp_size tensor_parallel.tp.tp_size "
      "tensor_parallel.tensor_parallel.tp_size";
  const std::string shard_keys = Names({kTensorRanks, "brigade.tensor_shards --tensor_shards"});
  const absl::Status shards = parallel::Validate(
      parallel::TensorShards{.count = sharing.tensor_shards, .ranks = sharing.tensor});
  const std::string no_shards(absl::StripPrefix(shards.message(), "tensor shards: "));
  const std::string other_size = absl::StrCat("autotp_size is ", s.autotp_size);
  const bool one_size = s.autotp_size == 0 || s.tp_size == s.autotp_size;
  const std::string one_shard = "the model has one tensor shard: nothing is exchanged";
  return {
      {"--tensor_shards", shards.ok(), no_shards, kTensorRanks},
      {"brigade.tensor_shards", shards.ok() || said.Find("--tensor_shards") != nullptr, no_shards,
       shard_keys},
      {"--tensor_overlap", sharing.tensor_shards > 1, one_shard, shard_keys},
      {"brigade.tensor_pieces", s.tensor_pieces == 1 || sharing.tensor_shards > 1, one_shard,
       shard_keys},
      {"tensor_parallel.tp_overlap_comm", !s.tensor_overlap || sharing.tensor_shards > 1, one_shard,
       shard_keys},
      {"activation_checkpointing.partition_activations",
       !s.partition_activations || sharing.tensor > 1, "the model has one tensor rank",
       kTensorRanks, Rule::Kind::kHarmless},
      {"activation_checkpointing.partition_activations",
       sharing.tensor == 1 || s.partition_activations == sharing.sequence_parallel,
       "ranks share activations as brigade.sequence_parallel (--sequence_parallel) says",
       Names({kTensorRanks, "brigade.sequence_parallel"})},
      {"brigade.keep_gathered", sharing.sequence_parallel,
       "nothing is gathered: brigade.sequence_parallel (--sequence_parallel) is not true",
       "brigade.sequence_parallel"},
      {"brigade.tensor_sums", sharing.tensor > 1, "a tensor rank alone sends no sums",
       kTensorRanks},
      {"tensor_parallel.tensor_parallel", said.Find("tensor_parallel.tp") == nullptr,
       "tensor_parallel.tp is the same section", "tensor_parallel.tp"},
      {"tensor_parallel.tp.tp_size", one_size, other_size, kSizes},
      {"tensor_parallel.tensor_parallel.tp_size", one_size, other_size, kSizes},
  };
}

Rules ContextRules(const Together& together) {
  const bool has_context = together.sharing.context > 1;
  return {{"brigade.context_exchange", has_context,
           "no ranks share texts: sequence_parallel_size (--context_parallel) is not above 1",
           kContextRanks},
          {"--context_exchange", has_context,
           "no ranks share texts: --context_parallel is not above 1", kContextRanks}};
}

Rules PipelineRules(const Together& together) {
  const Settings& s = together.settings;
  const Sharing& sharing = together.sharing;
  const std::string parts = Names({kStages, kTensorRanks, "brigade.sequence_parallel"});
  const bool has_pipeline = sharing.pipeline > 1;
  const std::string no_pipeline =
      "no ranks share the model's layers: pipeline.stages (--pipeline) is not above 1";
  const std::string no_pipeline_of_flag =
      "no ranks share the model's layers: --pipeline is not above 1";
  const std::string rows =
      absl::StrCat("tensor ranks send ", sharing.sequence_parallel ? "parts of the" : "all",
                   " rows, as brigade.sequence_parallel (--sequence_parallel) says");
  const std::string one_stage = "the model has one stage";
  const auto sends = [&sharing](bool parts) {
    return sharing.tensor == 1 || parts == sharing.sequence_parallel;
  };
  return {
      {"--partition", has_pipeline, no_pipeline_of_flag, kStages},
      {"--schedule", has_pipeline, no_pipeline_of_flag, kStages},
      {"brigade.partition", has_pipeline, no_pipeline, kStages},
      {"brigade.schedule", has_pipeline, no_pipeline, kStages},
      {"brigade.tied_gradients", s.zero.tied_apart || !has_pipeline,
       absl::StrCat("the first and the last of ", sharing.pipeline,
                    " stages have gradients of their own of the tied weights: it must be "
                    "\"apart\""),
       kStages},
      {"pipeline.partition", has_pipeline, one_stage, kStages, Rule::Kind::kHarmless},
      {"pipeline.partition", s.no_partition.empty(), s.no_partition, kStages},
      {"pipeline.partition", !s.partition.has_value() || s.partition == s.deepspeed_partition,
       absl::StrCat("brigade.partition is ",
                    parallel::ToString(s.partition.value_or(parallel::PartitionChoice()))),
       Names({kStages, "brigade.partition"})},
      {"pipeline.pipe_partitioned", has_pipeline, one_stage, kStages, Rule::Kind::kHarmless},
      {"pipeline.pipe_partitioned", sends(s.pipe_partitioned), rows, parts},
      {"pipeline.grad_partitioned", has_pipeline, one_stage, kStages, Rule::Kind::kHarmless},
      {"pipeline.grad_partitioned", sends(s.grad_partitioned), rows, parts},
  };
}

// Of copies that update locally.
Rules ReplicaRules(const Together& together) {
  constexpr char kRounds[] =
      "brigade.replica_period brigade.replica_fragments --replica_period --replica_fragments "
      "brigade.replicas --replicas";
  const Settings& s = together.settings;
  const Sharing& sharing = together.sharing;
  const Said& said = together.said;
  const bool has_replicas = sharing.replicas > 0;
  const std::string replicas = said.Name("--replicas", "brigade.replicas");
  const auto named = [&said](const char* flag, const char* key) { return said.Name(flag, key); };
  const replicas::OuterOptions& outer = sharing.outer;
  Rules rules = {
      {replicas, !has_replicas || sharing.tensor * sharing.context * sharing.pipeline == 1,
       "ranks share a model or texts; each replica needs ranks with all of it",
       Names({kTensorRanks, kContextRanks, kStages})},
      {replicas, !has_replicas || !s.zero.offload.enabled(),
       "the optimizer state is on the host or in a file; rounds need it on the device",
       "zero_optimization.offload_optimizer.device"},
      {replicas,
       !has_replicas || s.optimizer != optim::OptimizerKind::kZeroOneAdam ||
           s.zero_one.local_step_clipper == 1,
       absl::StrCat("local_step_clipper is ", s.zero_one.local_step_clipper,
                    "; between meetings the ranks of a replica have weights of their own, and a "
                    "round takes one for all: write \"local_step_clipper\": 1, with which they "
                    "meet in each step"),
       "optimizer.type optimizer.params.local_step_clipper"},
      {named("--replica_fragments", "brigade.replica_fragments"),
       !has_replicas || outer.fragments <= outer.period,
       absl::StrCat("it is above ", named("--replica_period", "brigade.replica_period"), ", ",
                    outer.period),
       kRounds},
      {named("--replica_delay", "brigade.replica_delay"),
       !has_replicas || outer.fragments < 1 || outer.delay < outer.period / outer.fragments,
       absl::StrCat("it must be below ",
                    outer.fragments < 1 ? outer.period : outer.period / outer.fragments,
                    ", the steps between two rounds"),
       kRounds},
      {"brigade.outer_nesterov", !has_replicas || outer.momentum > 0, "rounds have no momentum",
       "brigade.outer_momentum --outer_momentum"},
  };
  const std::string none = "there are no replicas: brigade.replicas (--replicas) is not given";
  for (const char* const key :
       {"replica_period", "replica_fragments", "replica_delay", "replica_mix", "replica_start_step",
        "replica_wire", "outer_lr", "outer_momentum", "outer_nesterov"}) {
    for (const char* const prefix : {"brigade.", "--"}) {
      rules.push_back({absl::StrCat(prefix, key), has_replicas, none, kReplicas});
    }
  }
  return rules;
}

}  // namespace

Rules FlagRules(const Said& said) {
  const auto in_range = [&said](const char* flag, int most) -> Rule {
    const Json* const value = said.Find(flag);
    return {flag, value == nullptr || (*value >= 1 && *value <= most),
            absl::StrCat("it must be 1 to ", most), ""};
  };
  const auto is = [&said](const char* flag, bool (*fits)(double), const char* what) -> Rule {
    const Json* const value = said.Find(flag);
    return {flag, value == nullptr || fits(value->get<double>()), absl::StrCat("it must be ", what),
            ""};
  };
  constexpr auto is_share = [](double value) { return value >= 0 && value < 1; };
  return {in_range("--tensor", kMostSharingRanks),
          in_range("--tensor_shards", kMostSharingRanks),
          in_range("--tensor_overlap", parallel::kMostPieces),
          in_range("--context_parallel", kMostSharingRanks),
          in_range("--pipeline", kMostSharingRanks),
          in_range("--shard_ranks", kMostSharingRanks),
          in_range("--replicas", kMostSharingRanks),
          is(
              "--replica_period", [](double value) { return value >= 1; }, "at least 1"),
          is(
              "--replica_fragments", [](double value) { return value >= 1; }, "at least 1"),
          is(
              "--replica_delay", [](double value) { return value >= 0; }, "at least 0"),
          is(
              "--replica_start_step", [](double value) { return value >= 0; }, "at least 0"),
          is("--replica_mix", is_share, "at least 0 and below 1"),
          is("--outer_momentum", is_share, "at least 0 and below 1"),
          is(
              "--outer_lr", [](double value) { return value > 0 && std::isfinite(value); },
              "positive")};
}

Rules ParallelRules(const Together& together) {
  return Joined({TensorRules(together), ContextRules(together), PipelineRules(together),
                 ReplicaRules(together)});
}

}  // namespace brigade::train
