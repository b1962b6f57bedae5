#include "brigade/train/config/config_grid.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/counted.h"
#include "brigade/parallel/shard.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::train {
namespace {

// Pieces of products beside whose exchange others are multiplied, where nobody says how many.
// Untuned; as many as elsewhere (TransformerEngine).
constexpr int kDefaultPieces = 4;

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// The key that says how many tensor ranks there are.
const char* TensorKey(const Said& said) {
  for (const char* const key :
       {"tensor_parallel.tp.tp_size", "tensor_parallel.tensor_parallel.tp_size"}) {
    if (said.Find(key) != nullptr) return key;
  }
  return "tensor_parallel.autotp_size";
}

}  // namespace

const Json* Said::Find(absl::string_view path) const {
  return train::Find(absl::StartsWith(path, "--") ? flags : file, path);
}

std::string Said::Name(absl::string_view flag, absl::string_view key) const {
  return std::string(Find(flag) != nullptr ? flag : key);
}

bool HasLoco(const Said& said) {
  const Json* const key = said.Find("zero_optimization.zeropp_loco_param");
  return said.Find("--loco") != nullptr || (key != nullptr && !key->is_null());
}

Json FlagsOf(const ModelParallelism& model, const StepFlags& step) {
  Json flags = Json::object();
  const auto add = [&flags](const char* flag, const auto& value) {
    if (value.has_value()) flags[flag] = *value;
  };
  add("--tensor", model.tensor);
  add("--context_parallel", model.context);
  add("--tensor_shards", model.tensor_shards);
  add("--tensor_overlap", model.tensor_overlap);
  add("--pipeline", model.pipeline);
  add("--shard_ranks", model.shard_ranks);
  add("--lr", step.lr);
  if (model.sequence_parallel) flags["--sequence_parallel"] = true;
  if (const auto exchange = model.context_exchange; exchange.has_value()) {
    flags["--context_exchange"] = ToString(*exchange);
  }
  if (model.schedule.has_value()) flags["--schedule"] = parallel::ToString(*model.schedule);
  if (model.partition.has_value()) flags["--partition"] = parallel::ToString(*model.partition);
  add("--replicas", model.replicas.replicas);
  add("--replica_period", model.replicas.period);
  add("--outer_lr", model.replicas.lr);
  add("--outer_momentum", model.replicas.momentum);
  add("--replica_fragments", model.replicas.fragments);
  add("--replica_delay", model.replicas.delay);
  add("--replica_mix", model.replicas.mix);
  add("--replica_start_step", model.replicas.start_step);
  if (const auto wire = model.replicas.wire; wire.has_value()) {
    flags["--replica_wire"] = std::string(precision::ShortName(*wire));
  }
  if (step.batch > 0) flags["--batch"] = step.batch;
  if (step.quantized_weights) flags["--quantized_weights"] = true;
  if (step.quantized_gradients) flags["--quantized_gradients"] = true;
  if (step.loco) flags["--loco"] = true;
  if (step.gradient_compression.has_value()) {
    flags["--gradient_compression"] = zero::Name(*step.gradient_compression);
  } else if (step.chooses_gradient_compression) {
    flags["--gradient_compression"] = "auto";
  }
  if (step.dtype.has_value()) {
    flags["--precision"] = std::string(precision::ShortName(*step.dtype));
  }
  return flags;
}

Sharing Merged(const Settings& s, const ModelParallelism& flags) {
  const auto chosen = [](const std::optional<int>& flag, int of_config, int otherwise) {
    if (flag.has_value() && *flag >= 1 && *flag <= kMostSharingRanks) return *flag;
    return of_config != 0 ? of_config : otherwise;
  };
  const auto either = [](const auto& flag, const auto& of_config) {
    return flag.has_value() ? flag : of_config;
  };
  Sharing merged;
  merged.tensor = chosen(flags.tensor, std::max(s.autotp_size, s.tp_size), 1);
  merged.context = chosen(flags.context, s.sequence_parallel_size, 1);
  merged.tensor_shards = chosen(flags.tensor_shards, s.tensor_shards, merged.tensor);
  merged.tensor_overlap = s.tensor_overlap || flags.tensor_overlap.has_value();
  merged.tensor_pieces =
      chosen(flags.tensor_overlap, s.tensor_pieces, s.tensor_overlap ? kDefaultPieces : 1);
  merged.sequence_parallel = flags.sequence_parallel || s.sequence_parallel;
  merged.context_exchange = either(flags.context_exchange, s.context_exchange);
  merged.pipeline = chosen(flags.pipeline, s.stages, 1);
  merged.shard_ranks =
      chosen(flags.shard_ranks, std::max(s.zero.shard_ranks, std::max(s.mics_shard_size, 0)), 0);
  if (s.zero.stage == 3 && s.hpz_partition_size > 1) merged.hpz_ranks = s.hpz_partition_size;
  merged.schedule = either(flags.schedule, s.pipeline_schedule);
  merged.partition = either(flags.partition, either(s.partition, s.deepspeed_partition));
  const ReplicaFlags& replicas = flags.replicas;
  merged.replicas = chosen(replicas.replicas, s.replicas, 0);
  merged.outer = {.period = replicas.period.value_or(s.outer.period),
                  .lr = replicas.lr.value_or(s.outer.lr),
                  .momentum = replicas.momentum.value_or(s.outer.momentum),
                  .nesterov = s.outer.nesterov,
                  .fragments = replicas.fragments.value_or(s.outer.fragments),
                  .delay = replicas.delay.value_or(s.outer.delay),
                  .mix = replicas.mix.value_or(s.outer.mix),
                  .wire = replicas.wire.value_or(s.outer.wire),
                  .start_step = replicas.start_step.value_or(s.outer.start_step)};
  return merged;
}

absl::StatusOr<parallel::GridShape> GridOf(const Said& said, const Sharing& sharing, int ranks) {
  // At most 2^45.
  const int64_t of_text = int64_t{sharing.tensor} * sharing.context * sharing.pipeline;
  if (ranks % of_text == 0) {
    return parallel::GridShape{.tensor = sharing.tensor,
                               .context = sharing.context,
                               .data = static_cast<int>(ranks / of_text),
                               .pipeline = sharing.pipeline};
  }
  std::string axes;
  for (const auto& [name, number] :
       {std::pair(said.Name("--tensor", TensorKey(said)), sharing.tensor),
        std::pair(said.Name("--context_parallel", "sequence_parallel_size"), sharing.context),
        std::pair(said.Name("--pipeline", "pipeline.stages"), sharing.pipeline)}) {
    if (number > 1) absl::StrAppend(&axes, axes.empty() ? "" : " x ", name, " ", number);
  }
  return Invalid(device::Counted(ranks, "rank"), " cannot be shared out by ", axes, ": ", of_text,
                 " does not divide ", ranks);
}

std::string ShardsName(const Said& said) {
  return said.Name("--shard_ranks", said.Find("brigade.shard_ranks") != nullptr
                                        ? "brigade.shard_ranks"
                                        : "zero_optimization.mics_shard_size");
}

absl::Status CheckShards(const Said& said, const Sharing& sharing,
                         const parallel::GridShape& grid) {
  const int all = grid.data * grid.context;
  // Of replicas that do not divide the ranks CheckReplicas speaks.
  const bool has_replicas = sharing.replicas > 0 && all % sharing.replicas == 0;
  const int ranks = has_replicas ? all / sharing.replicas : all;
  if (sharing.shard_ranks == 0 || ranks % sharing.shard_ranks == 0) return absl::OkStatus();
  return Invalid(ShardsName(said), " is ", sharing.shard_ranks,
                 ", but groups of so many ranks do not divide ", device::Counted(ranks, "rank"),
                 has_replicas ? " of a replica" : " with the same weights");
}

absl::Status CheckNear(const Sharing& sharing, const parallel::GridShape& grid) {
  const int sharers = SharersOf(sharing, grid);
  if (sharing.hpz_ranks == 0 || sharers % sharing.hpz_ranks == 0) return absl::OkStatus();
  return Invalid("zero_optimization.zero_hpz_partition_size is ", sharing.hpz_ranks,
                 ", but so many ranks do not divide ", device::Counted(sharers, "rank"),
                 " that share a state");
}

absl::Status CheckReplicas(const Said& said, const Sharing& sharing,
                           const parallel::GridShape& grid) {
  const int ranks = grid.data * grid.context;
  if (sharing.replicas == 0 || ranks % sharing.replicas == 0) return absl::OkStatus();
  return Invalid(said.Name("--replicas", "brigade.replicas"), " is ", sharing.replicas,
                 ", but so many replicas do not divide ", device::Counted(ranks, "rank"));
}

int SharersOf(const Sharing& sharing, const parallel::GridShape& grid) {
  if (sharing.shard_ranks > 0) return sharing.shard_ranks;
  return grid.data * grid.context / std::max(sharing.replicas, 1);
}

absl::Status CheckTensors(const Said& said, optim::OptimizerKind optimizer,
                          const parallel::GridShape& grid) {
  if (optim::HasCodes(optimizer) && grid.tensor > 1) {
    const bool is_adam_w = optimizer == optim::OptimizerKind::kAdamW8;
    return Invalid("optimizer.type is \"", is_adam_w ? "AdamW8bit" : "Adam8bit",
                   "\", whose moments have a scale for each 256 elements of whole tensors, but ",
                   device::Counted(grid.tensor, "rank"), " have parts of them (",
                   said.Name("--tensor", TensorKey(said)), ")");
  }
  if (optimizer == optim::OptimizerKind::kMuon && grid.tensor > 1) {
    return Invalid("optimizer.type is \"Muon\", which makes whole matrices orthogonal, but ",
                   device::Counted(grid.tensor, "rank"), " have parts of them (",
                   said.Name("--tensor", TensorKey(said)), ")");
  }
  if (optimizer == optim::OptimizerKind::kAdafactor && grid.tensor > 1) {
    return Invalid("optimizer.type is \"Adafactor\", whose factors are of whole matrices, but ",
                   device::Counted(grid.tensor, "rank"), " have parts of them (",
                   said.Name("--tensor", TensorKey(said)), ")");
  }
  if (!optim::IsLamb(optimizer) || grid.tensor == 1) return absl::OkStatus();
  const bool is_one_bit = optimizer == optim::OptimizerKind::kOneBitLamb;
  return Invalid("optimizer.type is \"", is_one_bit ? "OneBitLamb" : "Lamb",
                 "\", whose rate goes by norms of whole tensors, but ",
                 device::Counted(grid.tensor, "rank"), " have parts of them (",
                 said.Name("--tensor", TensorKey(said)), ")");
}

absl::Status CheckPipeline(const Said& said, const parallel::PipelineShape& shape) {
  const std::string name = said.Name("--schedule", "brigade.schedule");
  const std::string schedule = parallel::ToString(shape.schedule);
  if (const int chunks = shape.schedule.chunks; chunks > kMaxChunks) {
    return Invalid(name, " is \"", schedule, "\", of ", chunks,
                   " chunks on each stage; it must be at most ", kMaxChunks);
  }
  const absl::Status status = parallel::Validate(shape);
  if (status.ok()) return status;
  return Invalid(said.Name("--pipeline", "pipeline.stages"), " ", shape.stages, ", ", name, " ",
                 schedule, ", ", device::Counted(shape.micro_batches, "micro-batch"),
                 " on each rank: ", status.message());
}

}  // namespace brigade::train
