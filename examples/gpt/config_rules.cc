#include "brigade/examples/gpt/config_rules.h"

#include <set>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/collectives/options.h"
#include "brigade/device/printable.h"
#include "brigade/optim/schedule.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::gpt {
namespace {

// The value at "fp16.loss_scale"; null where it is not given, or is null.
const Json* Find(const Json& config, absl::string_view path) {
  const Json* found = &config;
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    if (!found->is_object()) return nullptr;
    const auto member = found->find(std::string(name));
    if (member == found->end()) return nullptr;
    found = &*member;
  }
  return found->is_null() ? nullptr : found;
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

// Whether a section of these, with blanks between, has a key that is refused: what it says is then
// not known.
bool AnyRefused(absl::string_view sections, const std::vector<Refusal>& refusals) {
  for (const absl::string_view section : absl::StrSplit(sections, ' ', absl::SkipEmpty())) {
    for (const Refusal& refusal : refusals) {
      const absl::string_view path = refusal.path;
      if (path == section || absl::StartsWith(path, absl::StrCat(section, "."))) return true;
    }
  }
  return false;
}

}  // namespace

std::string ButText(absl::string_view path, const Json& value, absl::string_view why) {
  constexpr bool kAscii = true;
  return device::Printable(absl::StrCat(path, " is ", value.dump(-1, ' ', kAscii), ", but ", why));
}

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

void CheckThatKeysHaveAnEffect(const Json& config, const Settings& s, const ModelParallelism& model,
                               Reading& reading) {
  // What a rule goes by beside the section of its key.
  constexpr char kZero[] = "zero_optimization";
  constexpr char kBrigade[] = "brigade";
  constexpr char kPipeline[] = "pipeline";
  constexpr char kTensor[] = "tensor_parallel";
  constexpr char kModel[] = "brigade tensor_parallel";
  constexpr char kFiles[] = "zero_optimization brigade activation_checkpointing";
  constexpr char kStash[] = "activation_checkpointing brigade pipeline";
  struct Rule {
    const char* path;
    bool has_effect;
    std::string why_not;
    const char* sections;
    // It changes no result.
    bool is_harmless = false;
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
  const bool gathers = s.zero.stage == 3 || !s.prefetch_bucket_size.has_value();
  const Rule rules[] = {
      {"fp16.enabled", !s.fp16 || !s.bf16, "bf16.enabled is true as well", "bf16 bfloat16"},
      {"aio", any_file, no_file, kFiles, true},
      {"brigade.file_checksums", any_file, no_file, kFiles},
      {"brigade.file_direct", any_file, no_file, kFiles},
      {"brigade.file_directory", any_file, no_file, kFiles},
      {"brigade.file_directory", s.nvme_path.value_or(directory) == directory,
       "offload_optimizer.nvme_path is another directory", kZero},
      {"brigade.file_engine", any_file, no_file, kFiles},
      {"brigade.file_limit", has_file, no_state, kZero},
      {"zero_optimization.sub_group_size", has_file, no_state, kZero, true},
      {"zero_optimization.sub_group_size", !has_file || s.sub_group_size != 0,
       "a chunk has at least one element", kZero},
      {"zero_optimization.offload_optimizer.buffer_count", has_file, no_state, kZero, true},
      {"zero_optimization.offload_optimizer.nvme_path", has_file, no_state, kZero, true},
      {"zero_optimization.offload_optimizer.device", !has_file || !directory.empty(),
       "nvme_path is missing", kBrigade},
      {"zero_optimization.offload_param.nvme_path", offload.file_parameters(),
       "offload_param.device is not \"nvme\"", kZero, true},
      {"zero_optimization.offload_param.nvme_path",
       !offload.file_parameters() || s.parameters_nvme_path.value_or(directory) == directory,
       "a rank has one file, and offload_optimizer.nvme_path is another directory", kBrigade},
      {"brigade.recompute_times", policy.kind != recompute::Policy::Kind::kNone,
       "no activations are made again", kStash},
      {"brigade.stash", unstashable.empty(), unstashable, kStash},
      {"brigade.stash", !stashes_in_file || !directory.empty(), "brigade.file_directory is missing",
       kFiles},
      {"activation_checkpointing.partition_activations",
       s.partition_activations == model.sequence_parallel,
       "ranks share activations as brigade.sequence_parallel (--sequence_parallel) says", kBrigade},
      {"brigade.keep_gathered", model.sequence_parallel,
       "nothing is gathered: brigade.sequence_parallel (--sequence_parallel) is not true",
       kBrigade},
      {"brigade.tensor_sums", model.tensor > 1, "a tensor rank alone sends no sums", kTensor},
      {"tensor_parallel.tensor_parallel", Find(config, "tensor_parallel.tp") == nullptr,
       "tensor_parallel.tp is the same section", kTensor},
      {"tensor_parallel.tp.tp_size", s.autotp_size == 0 || s.tp_size == s.autotp_size, other_size,
       kTensor},
      {"tensor_parallel.tensor_parallel.tp_size", s.autotp_size == 0 || s.tp_size == s.autotp_size,
       other_size, kTensor},
      {"brigade.partition", has_pipeline, no_pipeline, kPipeline},
      {"brigade.schedule", has_pipeline, no_pipeline, kPipeline},
      {"brigade.tied_gradients", s.zero.tied_apart || !has_pipeline,
       absl::StrCat("the first and the last of ", model.pipeline,
                    " stages have gradients of their own of the tied weights: it must be "
                    "\"apart\""),
       kPipeline},
      {"pipeline.partition", has_pipeline, no_pipeline, kPipeline},
      {"pipeline.partition", !s.partition.has_value() || s.partition == s.deepspeed_partition,
       absl::StrCat("brigade.partition is ",
                    parallel::ToString(s.partition.value_or(parallel::PartitionChoice()))),
       kBrigade},
      {"pipeline.activation_checkpoint_interval", !s.recompute.has_value(),
       "brigade.recompute says which activations are made again", kBrigade},
      {"pipeline.activation_checkpoint_interval",
       s.activation_checkpoint_interval != 0 || !config.contains("activation_checkpointing"),
       "activation_checkpointing asks to make activations again", "activation_checkpointing"},
      {"pipeline.pipe_partitioned", has_pipeline, no_pipeline, kPipeline},
      {"pipeline.pipe_partitioned",
       model.tensor == 1 || s.pipe_partitioned == model.sequence_parallel, rows, kModel},
      {"pipeline.grad_partitioned", has_pipeline, no_pipeline, kPipeline},
      {"pipeline.grad_partitioned",
       model.tensor == 1 || s.grad_partitioned == model.sequence_parallel, rows, kModel},
      {"activation_checkpointing.cpu_checkpointing", unstashable.empty(), unstashable, kStash},
      {"activation_checkpointing.cpu_checkpointing",
       !s.cpu_checkpointing || policy.stash != recompute::StashTier::kNone,
       "brigade.stash is \"none\"", kBrigade},
      {"brigade.algorithm", collectives::Exists(s.zero.reduction, s.zero.algorithm),
       absl::StrCat("it has no reduction ", std::string(collectives::Name(s.zero.reduction))),
       kBrigade},
      {"brigade.algorithm", has_nodes || s.zero.algorithm != collectives::Algorithm::kHierarchical,
       "it needs brigade.ranks_per_node or brigade.topology", kBrigade},
      {"brigade.ranks_per_node", s.topology.has_value() || KnowsOfNodes(s.zero.algorithm),
       absl::StrCat("without brigade.topology algorithm ", algorithm, " asks for no nodes"),
       kBrigade},
      {"brigade.topology",
       s.zero.algorithm == collectives::Algorithm::kAuto || KnowsOfNodes(s.zero.algorithm),
       absl::StrCat("algorithm ", algorithm, " asks for no topology"), kBrigade},
      {"zero_optimization.stage3_param_persistence_threshold", s.zero.stage == 3, stage, kZero,
       true},
      {"zero_optimization.param_persistence_threshold", s.zero.stage == 3, stage, kZero, true},
      {"zero_optimization.stage3_prefetch_bucket_size", gathers, stage, kZero, true},
      {"zero_optimization.prefetch_bucket_size", gathers, stage, kZero, true},
      {"brigade.delay_warm_up", s.zero.offload.delay_update, "brigade.delay_update is not true",
       kBrigade},
      {"brigade.live_units", s.zero.stage >= 2, stage, kZero},
      {"brigade.live_units",
       !s.prefetch_bucket_size.has_value() || s.zero.stage < 3 || s.zero.live_units == 1,
       "zero_optimization.stage3_prefetch_bucket_size is 0, so nothing is gathered ahead", kZero},
      {"zero_optimization.allgather_bucket_size",
       s.allgather_bucket_size.value_or(s.zero.bucket_elements) == s.zero.bucket_elements,
       absl::StrCat("parameters are gathered in the buckets of their gradients, and "
                    "reduce_bucket_size is ",
                    s.zero.bucket_elements),
       kZero, true},
      {"fp16.initial_scale_power", changes, constant, "fp16"},
      {"fp16.loss_scale_window", changes, constant, "fp16"},
      {"fp16.hysteresis", changes, constant, "fp16"},
      {"fp16.consecutive_hysteresis", changes, constant, "fp16"},
      {"fp16.min_loss_scale", changes, constant, "fp16"},
      {"brigade.at_minimum_loss_scale", s.fp16 && s.loss_scaler.dynamic(),
       "only fp16 with a dynamic loss scale has a minimum", "fp16"},
      {"scheduler.params.decay_step_size", decays || cycle->decay_step_size == 0, no_decay,
       "scheduler"},
      {"scheduler.params.decay_lr_rate", decays || cycle->decay_lr_rate == 0, no_decay,
       "scheduler"},
      {"scheduler.params.total_num_steps", decays, no_decay, "scheduler"},
      {"optimizer.params.lr", s.flags.lr.has_value() || highest == s.group.lr,
       absl::StrCat("the schedule has rates of its own, up to ", highest), "scheduler"},
  };
  const std::vector<Refusal> unread = reading.refusals;
  std::set<absl::string_view> named;
  for (const Rule& rule : rules) {
    const Json* value = Find(config, rule.path);
    if (value == nullptr || rule.has_effect) continue;
    const absl::string_view section = *absl::StrSplit(rule.path, '.').begin();
    if (AnyRefused(absl::StrCat(section, " ", rule.sections), unread)) continue;
    if (!named.insert(rule.path).second) continue;
    if (rule.is_harmless) {
      reading.without_effect.push_back(
          absl::StrCat(rule.path, " is ", ShortJson(*value), ": ", rule.why_not));
    } else {
      reading.refusals.push_back({rule.path, ButText(rule.path, *value, rule.why_not)});
    }
  }
}

precision::DType TypeOf(const Settings& s) {
  return s.fp16   ? precision::DType::kFloat16
         : s.bf16 ? precision::DType::kBFloat16
                  : precision::DType::kFloat32;
}

absl::Status CheckFlags(const Settings& s) {
  const double rate = s.flags.lr.value_or(s.group.lr);
  const double highest = OwnHighestRate(s.schedules[s.schedule]).value_or(rate);
  if (s.flags.lr.has_value() && highest != rate) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lr is ", rate, ", but the schedule has rates of its own, up to ", highest));
  }
  const precision::DType dtype = TypeOf(s);
  if (s.flags.dtype.value_or(dtype) == dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--precision is ", precision::ShortName(*s.flags.dtype),
      ", but by fp16.enabled and bf16.enabled of the file it is ", precision::ShortName(dtype)));
}

}  // namespace brigade::gpt
