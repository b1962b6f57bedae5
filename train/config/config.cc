#include "brigade/train/config/config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/train/config/config_grid.h"
#include "brigade/train/config/config_keys.h"
#include "brigade/train/config/config_nodes.h"
#include "brigade/train/config/config_rules.h"
#include "brigade/train/config/json_reader.h"

namespace brigade::train {
namespace {

// In the words of keys, and of --batch where that is given.
absl::StatusOr<zero::BatchSizes> Complete(const zero::BatchSizes& given, int ranks,
                                          const std::string& batch_name) {
  absl::StatusOr<zero::BatchSizes> sizes = zero::CompleteBatchSizes(given, ranks);
  if (sizes.ok()) return sizes;
  if (given.train_batch_size == 0 && given.train_micro_batch_size_per_gpu == 0) {
    return absl::InvalidArgumentError(
        "train_batch_size is not given, and neither is train_micro_batch_size_per_gpu; write one "
        "of them, or give --batch");
  }
  constexpr int kMostRanks = 1 << 20;  // of those the product below is exact
  std::string advice;
  if (given.train_batch_size > 0 && ranks >= 1 && ranks <= kMostRanks) {
    // What the batch must be a multiple of; or equal to, if all three are given.
    const int64_t micro = std::max<int64_t>(1, given.train_micro_batch_size_per_gpu);
    const int64_t steps = std::max<int64_t>(1, given.gradient_accumulation_steps);
    const bool all =
        given.train_micro_batch_size_per_gpu > 0 && given.gradient_accumulation_steps > 0;
    const int64_t product = micro * steps * ranks;
    const int64_t times = all ? 1 : std::max<int64_t>(1, given.train_batch_size / product);
    advice = absl::StrCat("; train_batch_size ", times * product, " would do");
  }
  return absl::InvalidArgumentError(absl::StrReplaceAll(
      absl::StrCat(sizes.status().message(), advice), {{"train_batch_size", batch_name}}));
}

// Grid, batch, pipeline and communicator, which follow from several keys and flags, where these are
// known; adds what is wrong with them.
void SetWhatFollows(const Said& said, const Settings& s, const Sharing& sharing, int ranks,
                    absl::string_view folder, Reading& reading, TrainConfig& all) {
  const auto are_known = [&reading](absl::string_view paths) {
    return !AnyRefused(paths, reading.refusals);
  };
  const auto check = [&reading](absl::string_view path, const absl::Status& status) {
    if (!status.ok()) {
      reading.refusals.push_back({std::string(path), std::string(status.message())});
    }
    return status.ok();
  };
  const auto take = [&check](absl::string_view path, auto result, auto& target) {
    if (!check(path, result.status())) return false;
    target = *std::move(result);
    return true;
  };
  const std::string batch_name = said.Name("--batch", "train_batch_size");
  std::string grid_path = "tensor_parallel";
  for (const char* const flag : {"--tensor", "--context_parallel", "--pipeline"}) {
    if (said.Find(flag) != nullptr) grid_path = flag;
  }
  const bool has_grid = are_known(Names({kTensorRanks, kContextRanks, kStages})) &&
                        take(grid_path, GridOf(said, sharing, ranks), all.grid);
  if (has_grid && are_known(kShardRanks) && are_known(kReplicas)) {
    if (check(ShardsName(said), CheckShards(said, sharing, all.grid)) &&
        are_known("zero_optimization.zero_hpz_partition_size")) {
      check("zero_optimization.zero_hpz_partition_size", CheckNear(sharing, all.grid));
    }
  }
  if (has_grid && are_known(kReplicas)) {
    check(said.Name("--replicas", "brigade.replicas"), CheckReplicas(said, sharing, all.grid));
  }
  if (has_grid && are_known("optimizer.type")) {
    check("optimizer.type", CheckTensors(said, s.optimizer, all.grid));
  }
  const bool has_batch =
      has_grid &&
      are_known(
          "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps --batch") &&
      take(batch_name, Complete(s.batch, all.grid.data, batch_name), all.batch);
  all.schedule = sharing.schedule.value_or(parallel::ScheduleChoice());
  all.partition = sharing.partition.value_or(parallel::PartitionChoice());
  if (has_batch && are_known("brigade.schedule --schedule")) {
    check(said.Name("--schedule", "brigade.schedule"), CheckPipeline(said, all.pipeline_shape()));
  }
  if (are_known("brigade.topology brigade.ranks_per_node") &&
      take("brigade.topology", NodesOf(s, ranks, folder), all.communicator.topology) &&
      are_known("brigade.algorithm")) {
    check("brigade.algorithm", CheckNodes(s.zero.algorithm, all.communicator));
  }
  if (are_known("brigade.topology") && s.topology.has_value() && s.open.any() &&
      all.communicator.topology.has_value() && all.communicator.topology->memory_bytes_per_s == 0) {
    check("brigade.topology", absl::InvalidArgumentError(ButText(
                                  "brigade.topology", *s.topology,
                                  "it has no memory_gigabytes_per_s, by which \"auto\" chooses "
                                  "what crosses the wire as codes")));
  }
}

// What crosses the wire as codes.
void SetCodes(const Said& said, const Settings& s, zero::ZeroOptions& zero) {
  using kernels::QuantFormat;
  if (s.quantized_weights && zero.stage > 0) zero.quantized_weights = QuantFormat::kInt8;
  if (s.quantized_frozen_weights && zero.stage == 3) {
    zero.quantized_frozen_weights = QuantFormat::kInt8;
  }
  if (!s.quantized_gradients) return;
  zero.quantized_gradients = QuantFormat::kInt4;
  if (HasLoco(said)) zero.loco = s.loco;
}

// What is left to the cost model.
OpenCodecs OpenOf(const Said& said, const Settings& s) {
  OpenCodecs open = s.open;
  if (open.gradients && HasLoco(said)) open.loco = s.loco;
  open.signs = s.compression;
  open.signs.method = zero::GradientCompression::kOneBit;
  open.measures = !s.topology.has_value();
  return open;
}

optim::OptimizerOptions Optimizer(const Settings& s) {
  const bool adam_w = s.optimizer == optim::OptimizerKind::kAdam && s.adam_w_mode;
  optim::OptimizerOptions options = {adam_w ? optim::OptimizerKind::kAdamW : s.optimizer,
                                     {s.group}};
  options.groups[0].schedule = s.schedules[s.schedule];
  options.freeze_step = s.freeze_step;
  options.one_bit_lamb = s.one_bit_lamb;
  options.zero_one = s.zero_one;
  options.coded = s.coded;
  options.coded.tables = !s.fp32_tables;
  if (options.kind == optim::OptimizerKind::kAdamW8) {
    options.groups[0].weight_decay = s.adam_w8_decay;
  }
  if (options.kind == optim::OptimizerKind::kMuon) {
    optim::ParameterGroup& group = options.groups[0];
    options.muon = s.muon;
    if (s.muon_lr.has_value() && group.lr > 0) options.muon.rate = *s.muon_lr / group.lr;
    group.momentum = s.muon_momentum;
    group.nesterov = s.muon_nesterov;
    group.beta1 = s.muon_beta1;
    group.beta2 = s.muon_beta2;
    group.eps = s.muon_eps;
  }
  if (options.kind == optim::OptimizerKind::kAdafactor) {
    options.adafactor = s.adafactor;
    options.groups[0].momentum = s.adafactor_beta1;
  }
  if (options.kind == optim::OptimizerKind::kLion) options.groups[0].beta2 = s.lion_beta2;
  return options;
}

// Empty where it is off.
std::string FolderOf(const Settings::MonitorFolder& monitor) {
  if (!monitor.enabled) return "";
  return (std::filesystem::path(monitor.output_path) / monitor.job_name)
      .lexically_normal()
      .string();
}

}  // namespace

absl::StatusOr<RecomputeTimes> ParseRecomputeTimes(absl::string_view text) {
  if (text == "operations") return RecomputeTimes::kOperations;
  if (text == "measured") return RecomputeTimes::kMeasured;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is neither operations nor measured"));
}

absl::StatusOr<TrainConfig> ParseConfig(absl::string_view json, int ranks, absl::string_view folder,
                                        const ModelParallelism& flags, const StepFlags& step) {
  std::vector<Refusal> refusals;
  std::optional<TrainConfig> config = ParseConfig(json, ranks, folder, flags, step, refusals);
  if (!config.has_value()) return StatusOf(refusals);
  return *std::move(config);
}

std::optional<TrainConfig> ParseConfig(absl::string_view json, int ranks, absl::string_view folder,
                                       const ModelParallelism& flags, const StepFlags& step,
                                       std::vector<Refusal>& refusals) {
  const auto refuse = [&refusals](const absl::Status& status) {
    if (!status.ok()) refusals.push_back({"", std::string(status.message())});
    return !status.ok();
  };
  const absl::StatusOr<Json> parsed = checkpoint::ParseJson(json);
  if (refuse(parsed.status())) return std::nullopt;
  const Json& config = *parsed;
  Settings s;
  s.flags = step;
  Reading reading = ReadObject(config, ConfigKeys(s));
  if (!config.is_object()) {
    refusals.insert(refusals.end(), reading.refusals.begin(), reading.refusals.end());
    return std::nullopt;
  }
  const size_t refused_flags = refusals.size();
  reading.refusals.insert(reading.refusals.begin(), refusals.begin(), refusals.end());
  if (step.batch != 0) s.batch.train_batch_size = step.batch;
  if (step.lr.has_value()) s.group.lr = *step.lr;
  s.quantized_weights = s.quantized_weights || step.quantized_weights;
  s.quantized_gradients = s.quantized_gradients || step.quantized_gradients;
  if (step.quantized_weights) s.open.weights = false;
  if (step.quantized_gradients) s.open.gradients = false;
  if (step.gradient_compression.has_value() || step.chooses_gradient_compression) {
    s.gradient_compression = step.gradient_compression;
    s.open.compression = step.chooses_gradient_compression;
  }
  if (s.zero.stage < 3) s.zero.offload.parameters = device::Tier::kDevice;
  const Said said = {config, FlagsOf(flags, step)};
  const Sharing sharing = Merged(s, flags);
  const recompute::Policy policy = PolicyOf(config, s);
  CheckRules({said, s, sharing, policy}, reading);

  TrainConfig all;
  SetWhatFollows(said, s, sharing, ranks, folder, reading, all);
  refusals = std::move(reading.refusals);
  // Of a flag that is refused the batch does not follow.
  if (refusals.size() > refused_flags || all.batch.train_batch_size == 0) return std::nullopt;

  zero::ZeroOptions& zero = s.zero;
  zero.model_ranks = all.grid.tensor * all.grid.pipeline;
  zero.shard_ranks = sharing.shard_ranks;
  zero.hpz_ranks = sharing.hpz_ranks;
  SetCodes(said, s, zero);
  if (s.gradient_compression.has_value()) {
    zero.gradient_compression = s.compression;
    zero.gradient_compression->method = *s.gradient_compression;
  }
  zero.micro_batches = static_cast<int>(all.batch.gradient_accumulation_steps);
  zero.optimizer = Optimizer(s);
  all.open = OpenOf(said, s);
  if (zero.quantized_gradients.has_value() || zero.exchanges_signs()) {
    Hops hops = HopsOf(all.communicator, zero.model_ranks, SharersOf(sharing, all.grid));
    const bool between_groups = sharing.shard_ranks > 0 && !zero.quantized_gradients.has_value();
    if (between_groups && hops.node_ranks > 0) {
      hops = {.why_one = "groups with a state each exchange what they have summed"};
    }
    zero.node_ranks = hops.node_ranks;
    if (!hops.why_one.empty()) reading.without_effect.push_back(OneHopText(said, hops.why_one));
  }
  if (s.gradient_clipping > 0.0) zero.max_grad_norm = s.gradient_clipping;
  if (zero.stage < 3) zero.persistence_threshold = 0;
  if (zero.stage == 3 && s.prefetch_bucket_size.has_value()) zero.live_units = 1;
  if (!zero.offload.enabled()) zero.offload.host_share = 1;
  if (s.sub_group_size.value_or(0) > 0) zero.offload.chunk_elements = *s.sub_group_size;
  if (const auto directory = Directory(s); directory.has_value()) {
    zero.offload.file.directory = InFolder(folder, *directory);
  }
  if (s.state_arrays.has_value()) {
    // DeepSpeed's chunk has master, gradient and two moments.
    zero.offload.chunk_buffers = std::max(2, (*s.state_arrays + 3) / 4);
  }
  zero.dtype = TypeOf(s);
  if (s.fp16) zero.loss_scaler = s.loss_scaler;
  if (s.bf16) zero.loss_scaler.check_overflow = s.check_grad_overflow;
  // The rules have words for all of it; this is for what they have not.
  if (refuse(zero::Validate(zero))) return std::nullopt;
  if (policy.stash == recompute::StashTier::kFile && refuse(zero.offload.file.Validate())) {
    return std::nullopt;
  }
  if (sharing.replicas > 0 && refuse(replicas::Validate(sharing.outer))) return std::nullopt;
  all.replicas = sharing.replicas;
  all.outer = sharing.outer;
  all.zero = zero;
  all.recompute = policy;
  all.recompute_times = s.recompute_times;
  all.dropout = s.dropout;
  all.write_mode = s.use_node_local_storage ? checkpoint::WriteMode::kPieceFiles
                                            : checkpoint::WriteMode::kInPlace;
  all.staging_bytes = s.checkpoint_staging_bytes;
  all.tensor_shards = sharing.tensor_shards;
  all.sequence_parallel = sharing.sequence_parallel;
  all.tensor_pieces = sharing.tensor_pieces;
  all.keep_gathered = s.keep_gathered;
  all.tensor_overlap = sharing.tensor_overlap;
  all.sum_wire = s.sum_wire;
  all.context_exchange = sharing.context_exchange.value_or(ContextExchange::kUlysses);
  all.autotuning = s.autotuning;
  all.steps_per_print = s.steps_per_print.value_or(0);
  all.drop_last = s.drop_last;
  all.monitor = {.tensorboard = FolderOf(s.tensorboard),
                 .csv = FolderOf(s.csv_monitor),
                 .wall_clock_breakdown = s.wall_clock_breakdown};
  all.profiler = s.profiler;
  all.profiler.profile_step = s.profile_step + 1;
  if (s.profiler_output.has_value()) {
    all.profiler.output_file = InFolder(folder, *s.profiler_output);
  }
  all.verify_replicas = s.verify_replicas;
  all.without_effect = std::move(reading.without_effect);
  return all;
}

absl::StatusOr<std::optional<TrainConfig>> ReadConfig(const std::string& path, int ranks,
                                                      const ModelParallelism& flags,
                                                      const StepFlags& step,
                                                      std::vector<Refusal>& refusals) {
  BRIGADE_ASSIGN_OR_RETURN(const std::string text,
                           device::ReadFile(path, checkpoint::JsonLimits().bytes));
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  return ParseConfig(text, ranks, folder, flags, step, refusals);
}

absl::StatusOr<TrainConfig> ReadConfig(const std::string& path, int ranks,
                                       const ModelParallelism& flags, const StepFlags& step) {
  std::vector<Refusal> refusals;
  BRIGADE_ASSIGN_OR_RETURN(std::optional<TrainConfig> config,
                           ReadConfig(path, ranks, flags, step, refusals));
  if (config.has_value()) return *std::move(config);
  const absl::Status status = StatusOf(refusals);
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace brigade::train
