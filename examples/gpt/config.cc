#include "brigade/examples/gpt/config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/config_grid.h"
#include "brigade/examples/gpt/config_keys.h"
#include "brigade/examples/gpt/json_reader.h"

namespace brigade::gpt {
namespace {

// Relative paths begin at the config's folder.
std::string InFolder(absl::string_view folder, const std::string& path) {
  return path.front() == '/' ? path : absl::StrCat(folder, "/", path);
}

// The value at "fp16.loss_scale", or null.
const Json* Find(const Json& config, absl::string_view path) {
  const Json* found = &config;
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    const auto member = found->find(std::string(name));
    if (member == found->end()) return nullptr;
    found = &*member;
  }
  return found;
}

// The value and the reason may hold a name of a file, of any bytes.
absl::Status Contradiction(absl::string_view path, const Json& value, absl::string_view why) {
  constexpr bool kAscii = true;
  return absl::InvalidArgumentError(
      device::Printable(absl::StrCat(path, " is ", value.dump(-1, ' ', kAscii), ", but ", why)));
}

// The rate that a schedule rises to, where that is not the optimizer's.
std::optional<double> OwnHighestRate(const optim::Schedule& schedule) {
  if (const auto* warmup = std::get_if<optim::WarmupLR>(&schedule)) return warmup->warmup_max_lr;
  if (const auto* decay = std::get_if<optim::WarmupDecayLR>(&schedule)) return decay->warmup_max_lr;
  if (const auto* cycle = std::get_if<optim::OneCycle>(&schedule)) return cycle->cycle_max_lr;
  return std::nullopt;
}

// Whether the algorithm is made for nodes.
bool KnowsOfNodes(collectives::Algorithm algorithm) {
  return algorithm == collectives::Algorithm::kHierarchical ||
         algorithm == collectives::Algorithm::kDoubleTree;
}

// Of `ranks` ranks, if any was asked for. Errors name the key.
absl::StatusOr<collectives::CommunicatorOptions> Communicator(const Settings& s, int ranks,
                                                              absl::string_view folder) {
  collectives::CommunicatorOptions options;
  if (!s.topology.has_value() && !s.ranks_per_node.has_value()) return options;
  // Nodes alone: all links are alike.
  collectives::Topology topology;
  topology.inside = topology.between = {1e-6, 1e9};
  const Json path = s.topology.value_or("");
  if (s.topology.has_value()) {
    const auto text =
        device::ReadFile(InFolder(folder, *s.topology), checkpoint::JsonLimits().bytes);
    if (!text.ok()) return Contradiction("brigade.topology", path, text.status().message());
    auto machine = collectives::TopologyFromJson(*text);
    if (!machine.ok()) return Contradiction("brigade.topology", path, machine.status().message());
    topology = *std::move(machine);
  }
  if (s.ranks_per_node.has_value()) {
    topology.ranks_of_node = collectives::RanksOfNodes(ranks, *s.ranks_per_node);
  }
  if (topology.ranks_of_node.empty()) {
    return Contradiction("brigade.topology", path,
                         "it has no ranks_of_node: brigade.ranks_per_node is needed");
  }
  if (topology.ranks() != ranks) {
    return Contradiction("brigade.topology", path,
                         absl::StrCat("its nodes have ", topology.ranks(), " ranks, and ", ranks,
                                      " train; brigade.ranks_per_node would replace them"));
  }
  if (s.zero.algorithm == collectives::Algorithm::kHierarchical && !topology.Even()) {
    const auto [fewest, most] =
        std::minmax_element(topology.ranks_of_node.begin(), topology.ranks_of_node.end());
    return Contradiction("brigade.algorithm", "hierarchical",
                         absl::StrCat("it needs nodes of one size, and they have ", *fewest, " to ",
                                      *most, " ranks"));
  }
  options.topology = std::move(topology);
  return options;
}

// Of all files.
const std::optional<std::string>& Directory(const Settings& s) {
  return s.file_directory.has_value() ? s.file_directory : s.nvme_path;
}

recompute::Policy PolicyOf(const Json& config, const Settings& s) {
  recompute::Policy policy;
  if (config.contains("activation_checkpointing")) policy.kind = recompute::Policy::Kind::kBlock;
  if (const auto interval = s.activation_checkpoint_interval; interval.has_value()) {
    policy = *interval == 0 ? recompute::Policy()
                            : recompute::Policy{.kind = recompute::Policy::Kind::kSegments,
                                                .stages_per_segment = *interval};
  }
  if (s.recompute.has_value()) policy = *s.recompute;
  policy.stash = s.stash.value_or(s.cpu_checkpointing ? recompute::StashTier::kHost
                                                      : recompute::StashTier::kNone);
  return policy;
}

// Keys that are right by themselves, but have no effect beside the others. `model`: as flags and
// file have it.
absl::Status CheckThatAllHaveAnEffect(const Json& config, const Settings& s,
                                      const ModelParallelism& model) {
  struct Rule {
    const char* path;
    bool has_effect;
    std::string why_not;
  };
  const std::string stage = absl::StrCat("zero_optimization.stage is ", s.zero.stage);
  // Of a section that is off nothing has, and it may say anything.
  const bool changes = s.loss_scaler.dynamic() || !s.fp16;
  const std::string constant = "fp16.loss_scale is not 0, so the scale never changes";
  const optim::Schedule& schedule = s.schedules[s.schedule];
  const auto* cycle = std::get_if<optim::OneCycle>(&schedule);
  const bool decays = cycle == nullptr || (cycle->decay_step_size > 0 && cycle->decay_lr_rate > 0);
  const std::string no_decay = "a decay needs both decay_step_size and decay_lr_rate";
  const double highest = OwnHighestRate(schedule).value_or(s.group.lr);
  const std::string algorithm(collectives::Name(s.zero.algorithm));
  const bool has_nodes = s.topology.has_value() || s.ranks_per_node.has_value();
  const recompute::Policy policy = PolicyOf(config, s);
  const std::string unstashable(recompute::Validate(policy).message());
  const zero::OffloadOptions& offload = s.zero.offload;
  const bool has_file = offload.file_state();
  const std::string no_state = "no state is in a file: offload_optimizer.device is not \"nvme\"";
  const bool stashes_in_file = policy.stash == recompute::StashTier::kFile;
  const bool any_file = has_file || stashes_in_file;
  const std::string no_file = absl::StrCat(no_state, ", and brigade.stash is not \"file\"");
  const std::string directory = Directory(s).value_or("");
  const std::string other_size = absl::StrCat("autotp_size is ", s.autotp_size);
  const bool has_pipeline = model.pipeline > 1;
  const std::string no_pipeline =
      "no ranks share the model's layers: pipeline.stages (--pipeline) is not above 1";
  const std::string rows =
      absl::StrCat("tensor ranks send ", model.sequence_parallel ? "parts of the" : "all",
                   " rows, as brigade.sequence_parallel (--sequence_parallel) says");
  const Rule rules[] = {
      {"aio", any_file, no_file},
      {"brigade.file_checksums", any_file, no_file},
      {"brigade.file_direct", any_file, no_file},
      {"brigade.file_directory", any_file, no_file},
      {"brigade.file_directory", s.nvme_path.value_or(directory) == directory,
       "offload_optimizer.nvme_path is another directory"},
      {"brigade.file_engine", any_file, no_file},
      {"brigade.file_limit", has_file, no_state},
      {"zero_optimization.sub_group_size", has_file, no_state},
      {"zero_optimization.offload_optimizer.buffer_count", has_file, no_state},
      {"zero_optimization.offload_optimizer.nvme_path", has_file, no_state},
      {"zero_optimization.offload_optimizer.device", !has_file || !directory.empty(),
       "nvme_path is missing"},
      {"zero_optimization.offload_param.nvme_path", offload.file_parameters(),
       "offload_param.device is not \"nvme\""},
      {"zero_optimization.offload_param.nvme_path",
       s.parameters_nvme_path.value_or(directory) == directory,
       "a rank has one file, and offload_optimizer.nvme_path is another directory"},
      {"brigade.recompute_times", policy.kind != recompute::Policy::Kind::kNone,
       "no activations are made again"},
      {"brigade.stash", unstashable.empty(), unstashable},
      {"brigade.stash", !stashes_in_file || !directory.empty(),
       "brigade.file_directory is missing"},
      {"activation_checkpointing.partition_activations",
       s.partition_activations == model.sequence_parallel,
       "ranks share activations as brigade.sequence_parallel (--sequence_parallel) says"},
      {"brigade.keep_gathered", model.sequence_parallel,
       "nothing is gathered: brigade.sequence_parallel (--sequence_parallel) is not true"},
      {"brigade.tensor_sums", model.tensor > 1, "a tensor rank alone sends no sums"},
      {"tensor_parallel.tensor_parallel", Find(config, "tensor_parallel.tp") == nullptr,
       "tensor_parallel.tp is the same section"},
      {"tensor_parallel.tp.tp_size", s.autotp_size == 0 || s.tp_size == s.autotp_size, other_size},
      {"tensor_parallel.tensor_parallel.tp_size", s.autotp_size == 0 || s.tp_size == s.autotp_size,
       other_size},
      {"brigade.partition", has_pipeline, no_pipeline},
      {"brigade.schedule", has_pipeline, no_pipeline},
      {"brigade.tied_gradients", s.zero.tied_apart || !has_pipeline,
       absl::StrCat("the first and the last of ", model.pipeline,
                    " stages have gradients of their own of the tied weights: it must be "
                    "\"apart\"")},
      {"pipeline.partition", has_pipeline, no_pipeline},
      {"pipeline.partition", !s.partition.has_value() || s.partition == s.deepspeed_partition,
       absl::StrCat("brigade.partition is ",
                    parallel::ToString(s.partition.value_or(parallel::PartitionChoice())))},
      {"pipeline.activation_checkpoint_interval", !s.recompute.has_value(),
       "brigade.recompute says which activations are made again"},
      {"pipeline.activation_checkpoint_interval",
       s.activation_checkpoint_interval != 0 || !config.contains("activation_checkpointing"),
       "activation_checkpointing asks to make activations again"},
      {"pipeline.pipe_partitioned", has_pipeline, no_pipeline},
      {"pipeline.pipe_partitioned",
       model.tensor == 1 || s.pipe_partitioned == model.sequence_parallel, rows},
      {"pipeline.grad_partitioned", has_pipeline, no_pipeline},
      {"pipeline.grad_partitioned",
       model.tensor == 1 || s.grad_partitioned == model.sequence_parallel, rows},
      {"activation_checkpointing.cpu_checkpointing", unstashable.empty(), unstashable},
      {"activation_checkpointing.cpu_checkpointing",
       !s.cpu_checkpointing || policy.stash != recompute::StashTier::kNone,
       "brigade.stash is \"none\""},
      {"brigade.algorithm", collectives::Exists(s.zero.reduction, s.zero.algorithm),
       absl::StrCat("it has no reduction ", std::string(collectives::Name(s.zero.reduction)))},
      {"brigade.algorithm", has_nodes || s.zero.algorithm != collectives::Algorithm::kHierarchical,
       "it needs brigade.ranks_per_node or brigade.topology"},
      {"brigade.ranks_per_node", s.topology.has_value() || KnowsOfNodes(s.zero.algorithm),
       absl::StrCat("without brigade.topology algorithm ", algorithm, " asks for no nodes")},
      {"brigade.topology",
       s.zero.algorithm == collectives::Algorithm::kAuto || KnowsOfNodes(s.zero.algorithm),
       absl::StrCat("algorithm ", algorithm, " asks for no topology")},
      {"zero_optimization.stage3_param_persistence_threshold", s.zero.stage == 3, stage},
      {"zero_optimization.stage3_prefetch_bucket_size", s.zero.stage == 3, stage},
      {"brigade.delay_warm_up", s.zero.offload.delay_update, "brigade.delay_update is not true"},
      {"brigade.live_units", s.zero.stage >= 2, stage},
      {"brigade.live_units", !s.prefetch_bucket_size.has_value() || s.zero.live_units == 1,
       "zero_optimization.stage3_prefetch_bucket_size is 0, so nothing is gathered ahead"},
      {"zero_optimization.allgather_bucket_size",
       s.allgather_bucket_size.value_or(s.zero.bucket_elements) == s.zero.bucket_elements,
       absl::StrCat("parameters are gathered in the buckets of their gradients, and "
                    "reduce_bucket_size is ",
                    s.zero.bucket_elements)},
      {"fp16.initial_scale_power", changes, constant},
      {"fp16.loss_scale_window", changes, constant},
      {"fp16.hysteresis", changes, constant},
      {"fp16.consecutive_hysteresis", changes, constant},
      {"fp16.min_loss_scale", changes, constant},
      {"brigade.at_minimum_loss_scale", s.fp16 && s.loss_scaler.dynamic(),
       "only fp16 with a dynamic loss scale has a minimum"},
      {"scheduler.params.decay_step_size", decays || cycle->decay_step_size == 0, no_decay},
      {"scheduler.params.decay_lr_rate", decays || cycle->decay_lr_rate == 0, no_decay},
      {"scheduler.params.total_num_steps", decays, no_decay},
      {"optimizer.params.lr", highest == s.group.lr,
       absl::StrCat("the schedule has rates of its own, up to ", highest)},
  };
  for (const Rule& rule : rules) {
    const Json* value = Find(config, rule.path);
    if (value != nullptr && !rule.has_effect) return Contradiction(rule.path, *value, rule.why_not);
  }
  return absl::OkStatus();
}

absl::StatusOr<zero::BatchSizes> Complete(const zero::BatchSizes& given, int ranks) {
  absl::StatusOr<zero::BatchSizes> sizes = zero::CompleteBatchSizes(given, ranks);
  constexpr int kMostRanks = 1 << 20;  // of those the product below is exact
  const bool has_advice = given.train_batch_size > 0 && ranks >= 1 && ranks <= kMostRanks;
  if (sizes.ok() || !has_advice) return sizes;
  // What the batch must be a multiple of; or equal to, if all three are given.
  const int64_t micro = std::max<int64_t>(1, given.train_micro_batch_size_per_gpu);
  const int64_t steps = std::max<int64_t>(1, given.gradient_accumulation_steps);
  const bool all =
      given.train_micro_batch_size_per_gpu > 0 && given.gradient_accumulation_steps > 0;
  const int64_t product = micro * steps * ranks;
  const int64_t times = all ? 1 : std::max<int64_t>(1, given.train_batch_size / product);
  return absl::InvalidArgumentError(absl::StrCat(sizes.status().message(), " (0: not given); ",
                                                 "train_batch_size ", times * product,
                                                 " would do"));
}

optim::OptimizerOptions Optimizer(const Settings& s) {
  const bool adam_w = s.optimizer == optim::OptimizerKind::kAdam && s.adam_w_mode;
  optim::OptimizerOptions options = {adam_w ? optim::OptimizerKind::kAdamW : s.optimizer,
                                     {s.group}};
  options.groups[0].schedule = s.schedules[s.schedule];
  return options;
}

}  // namespace

absl::StatusOr<RecomputeTimes> ParseRecomputeTimes(absl::string_view text) {
  if (text == "operations") return RecomputeTimes::kOperations;
  if (text == "measured") return RecomputeTimes::kMeasured;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is neither operations nor measured"));
}

absl::StatusOr<TrainConfig> ParseConfig(absl::string_view json, int ranks, absl::string_view folder,
                                        const ModelParallelism& flags) {
  BRIGADE_ASSIGN_OR_RETURN(auto config, checkpoint::ParseJson(json));
  Settings s;
  BRIGADE_RETURN_IF_ERROR(ReadObject(config, ConfigKeys(s)));
  if (s.fp16 && s.bf16) {
    return Contradiction("fp16.enabled", true, "bf16.enabled is true as well");
  }
  const ModelParallelism model = Merged(s, flags);
  BRIGADE_RETURN_IF_ERROR(CheckThatAllHaveAnEffect(config, s, model));
  BRIGADE_ASSIGN_OR_RETURN(const parallel::GridShape grid, GridOf(model, ranks));
  const bool overlaps = s.tensor_overlap || flags.tensor_overlap != 0;
  if (overlaps && model.tensor_shards == 1) {
    return absl::InvalidArgumentError(
        "tensor_parallel.tp_overlap_comm (--tensor_overlap) has nothing to overlap: the model has "
        "one tensor shard");
  }
  BRIGADE_ASSIGN_OR_RETURN(auto batch, Complete(s.batch, grid.data));

  zero::ZeroOptions& zero = s.zero;
  zero.model_ranks = grid.tensor * grid.pipeline;
  zero.micro_batches = static_cast<int>(batch.gradient_accumulation_steps);
  zero.optimizer = Optimizer(s);
  if (s.gradient_clipping > 0.0) zero.max_grad_norm = s.gradient_clipping;
  if (s.prefetch_bucket_size.has_value()) zero.live_units = 1;
  if (const auto directory = Directory(s); directory.has_value()) {
    zero.offload.file.directory = InFolder(folder, *directory);
  }
  if (s.state_arrays.has_value()) {
    // DeepSpeed's chunk has master, gradient and two moments.
    zero.offload.chunk_buffers = std::max(2, (*s.state_arrays + 3) / 4);
  }
  zero.dtype = s.fp16   ? precision::DType::kFloat16
               : s.bf16 ? precision::DType::kBFloat16
                        : precision::DType::kFloat32;
  if (s.fp16) zero.loss_scaler = s.loss_scaler;
  if (s.bf16) zero.loss_scaler.check_overflow = s.check_grad_overflow;
  BRIGADE_RETURN_IF_ERROR(zero::Validate(zero));
  const recompute::Policy policy = PolicyOf(config, s);
  if (policy.stash == recompute::StashTier::kFile) {
    BRIGADE_RETURN_IF_ERROR(zero.offload.file.Validate());
  }
  absl::StatusOr<collectives::CommunicatorOptions> communicator = Communicator(s, ranks, folder);
  BRIGADE_RETURN_IF_ERROR(communicator.status());
  const auto mode = s.use_node_local_storage ? checkpoint::WriteMode::kPieceFiles
                                             : checkpoint::WriteMode::kInPlace;
  const auto exchange = model.context_exchange.value_or(ContextExchange::kUlysses);
  TrainConfig all = {.batch = batch,
                     .zero = zero,
                     .recompute = policy,
                     .recompute_times = s.recompute_times,
                     .dropout = s.dropout,
                     .write_mode = mode,
                     .communicator = *std::move(communicator),
                     .grid = grid,
                     .tensor_shards = model.tensor_shards,
                     .sequence_parallel = model.sequence_parallel,
                     .tensor_pieces = PiecesOf(s, flags),
                     .keep_gathered = s.keep_gathered,
                     .tensor_overlap = overlaps,
                     .sum_wire = s.sum_wire,
                     .context_exchange = exchange,
                     .schedule = model.schedule.value_or(parallel::ScheduleChoice()),
                     .partition = model.partition.value_or(parallel::PartitionChoice())};
  BRIGADE_RETURN_IF_ERROR(CheckPipeline(all.pipeline_shape()));
  return all;
}

absl::StatusOr<TrainConfig> ReadConfig(const std::string& path, int ranks,
                                       const ModelParallelism& flags) {
  BRIGADE_ASSIGN_OR_RETURN(const std::string text,
                           device::ReadFile(path, checkpoint::JsonLimits().bytes));
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  absl::StatusOr<TrainConfig> config = ParseConfig(text, ranks, folder, flags);
  if (config.ok()) return config;
  return absl::Status(config.status().code(), absl::StrCat(path, ": ", config.status().message()));
}

}  // namespace brigade::gpt
