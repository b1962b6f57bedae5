#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/options.h"
#include "brigade/recompute/policy.h"
#include "brigade/train/config/config_rules.h"

namespace brigade::train {
namespace {

// What `others` may have: the stage; where state and weights are; what is in files, and where;
// whether activations are made again; what exchanges gradients in fewer bytes.
constexpr char kStage[] = "zero_optimization.stage";
constexpr char kState[] = "zero_optimization.offload_optimizer.device";
constexpr char kWeights[] = "zero_optimization.offload_param.device zero_optimization.stage";
constexpr char kAnyFile[] = "zero_optimization.offload_optimizer.device brigade.stash";
constexpr char kDirectory[] =
    "brigade.file_directory zero_optimization.offload_optimizer.nvme_path";
constexpr char kPolicy[] =
    "brigade.recompute activation_checkpointing pipeline.activation_checkpoint_interval";
constexpr char kCodes[] = "zero_optimization.zero_quantized_gradients";
constexpr char kMethod[] = "brigade.gradient_compression --gradient_compression";
constexpr auto kHarmless = Rule::Kind::kHarmless;

// Whether the algorithm is made for nodes.
bool KnowsOfNodes(collectives::Algorithm algorithm) {
  return algorithm == collectives::Algorithm::kHierarchical ||
         algorithm == collectives::Algorithm::kDoubleTree;
}

std::string KeepsParameters(const zero::ZeroOptions& zero) {
  return absl::StrCat("stage ", zero.stage,
                      " keeps all parameters on the device; stage 3 does not");
}

// What is where: on the device, on the host, or in files.
Rules OffloadRules(const Together& together) {
  using device::Tier;
  const Settings& s = together.settings;
  const zero::OffloadOptions& offload = s.zero.offload;
  const std::string optimizer_device =
      absl::StrCat("offload_optimizer.device is ", offload.file_state() ? "\"nvme\""
                                                   : offload.enabled()  ? "\"cpu\""
                                                                        : "\"none\"");
  // Of a stage that keeps them there are none elsewhere (ParseConfig).
  const bool parameters = offload.parameters != Tier::kDevice;
  const bool cuts_parameters = s.zero.stage == 3;
  const Json* const said = together.said.Find("zero_optimization.offload_param.device");
  const bool says_none = said != nullptr && *said == Json("none");
  const bool is_whole = offload.host_share == 1;
  return {
      {"zero_optimization.offload_optimizer.device", !offload.enabled() || s.zero.stage > 0,
       "in stage 0 every rank updates everything; stages 1 to 3 share it out", kStage},
      {"zero_optimization.offload_optimizer.ratio", is_whole || offload.enabled(), optimizer_device,
       kState, kHarmless},
      {"zero_optimization.offload_optimizer.ratio", is_whole || !offload.file_state(),
       "offload_optimizer.device is \"nvme\": a step that cannot be written must leave all of the "
       "state as it was",
       kState},
      {"zero_optimization.offload_optimizer.ratio", is_whole || !parameters,
       "offload_param.device is not \"none\": the update of weights that are there is the host's",
       Names({kState, kWeights})},
      {"zero_optimization.offload_param.device", cuts_parameters || says_none,
       KeepsParameters(s.zero), kStage, kHarmless},
      {"zero_optimization.offload_param.device", !parameters || offload.enabled(),
       absl::StrCat(optimizer_device,
                    ": weights go where the optimizer's state is; write \"offload_optimizer\": "
                    "{\"device\": ",
                    said == nullptr ? "" : said->dump(), "} as well"),
       Names({kState, kStage})},
      {"zero_optimization.offload_param.device", !offload.file_parameters() || offload.file_state(),
       absl::StrCat(optimizer_device,
                    ": a step that cannot be written must leave both as they were"),
       Names({kState, kStage})},
      {"brigade.delay_update", !offload.delay_update || (offload.enabled() && is_whole),
       "it needs the whole optimizer state on the host or in a file: offload_optimizer.device "
       "\"cpu\" or \"nvme\", with a ratio of 1",
       Names({kState, "zero_optimization.offload_optimizer.ratio"})},
      {"brigade.delay_update", !offload.delay_update || !offload.file_parameters(),
       "offload_param.device is \"nvme\": it needs weights on the device or the host", kWeights},
      {"brigade.delay_warm_up", offload.delay_update, "brigade.delay_update is not true",
       "brigade.delay_update"},
  };
}

// Whether nodes have two hops of their own: of codes of gradients, or signs; or may have, by the
// cost model, which then asks for nodes and figures in any case.
bool HasTwoHops(const Settings& s) {
  return s.quantized_gradients || optim::AveragesMoments(s.optimizer) || s.open.any() ||
         s.gradient_compression == zero::GradientCompression::kOneBit;
}

Rules FileRules(const Together& together) {
  const Settings& s = together.settings;
  const zero::OffloadOptions& offload = s.zero.offload;
  const bool has_file = offload.file_state();
  const bool any_file = has_file || together.policy.stash == recompute::StashTier::kFile;
  const std::string no_state = "no state is in a file: offload_optimizer.device is not \"nvme\"";
  const std::string no_file = absl::StrCat(no_state, ", and brigade.stash is not \"file\"");
  const std::string directory = Directory(s).value_or("");
  return {
      {"aio", any_file, no_file, kAnyFile, kHarmless},
      {"aio.block_size", !any_file || offload.file.block_bytes % 4096 == 0,
       "it is no multiple of 4096", kAnyFile},
      {"brigade.file_checksums", any_file, no_file, kAnyFile},
      {"brigade.file_direct", any_file, no_file, kAnyFile},
      {"brigade.file_directory", any_file, no_file, kAnyFile},
      {"brigade.file_directory", !has_file || s.nvme_path.value_or(directory) == directory,
       "offload_optimizer.nvme_path is another directory", Names({kState, kDirectory})},
      {"brigade.file_engine", any_file, no_file, kAnyFile},
      {"brigade.file_limit", has_file, no_state, kState},
      {"zero_optimization.sub_group_size", has_file, no_state, kState, kHarmless},
      {"zero_optimization.sub_group_size", !has_file || s.sub_group_size != 0,
       "a chunk has at least one element", kState},
      {"zero_optimization.offload_optimizer.buffer_count", has_file, no_state, kState, kHarmless},
      {"zero_optimization.offload_optimizer.nvme_path",
       has_file || (any_file && !s.file_directory.has_value()), no_state,
       Names({kAnyFile, "brigade.file_directory"}), kHarmless},
      {"zero_optimization.offload_optimizer.device", !has_file || !directory.empty(),
       "nvme_path is missing", kDirectory},
      {"zero_optimization.offload_param.nvme_path", offload.file_parameters(),
       s.zero.stage < 3 ? KeepsParameters(s.zero) : "offload_param.device is not \"nvme\"",
       kWeights, kHarmless},
      {"zero_optimization.offload_param.nvme_path",
       !offload.file_parameters() || s.parameters_nvme_path.value_or(directory) == directory,
       "a rank has one file, and offload_optimizer.nvme_path is another directory",
       Names({kWeights, kDirectory})},
  };
}

// What is made again in the backward pass, and what is stashed.
Rules ActivationRules(const Together& together) {
  constexpr char kInterval[] = "pipeline.activation_checkpoint_interval";
  const Settings& s = together.settings;
  const recompute::Policy& policy = together.policy;
  const std::string unstashable(recompute::Validate(policy).message());
  return {
      {"brigade.recompute_times", policy.kind != recompute::Policy::Kind::kNone,
       "no activations are made again", kPolicy},
      {"brigade.stash", unstashable.empty(), unstashable, kPolicy},
      {"brigade.stash", policy.stash != recompute::StashTier::kFile || Directory(s).has_value(),
       "brigade.file_directory is missing", kDirectory},
      {"activation_checkpointing.cpu_checkpointing", unstashable.empty(), unstashable,
       Names({kPolicy, "brigade.stash"})},
      {"activation_checkpointing.cpu_checkpointing",
       !s.cpu_checkpointing || policy.stash != recompute::StashTier::kNone,
       "brigade.stash is \"none\"", "brigade.stash"},
      {kInterval, !s.recompute.has_value(),
       "brigade.recompute says which activations are made again", "brigade.recompute"},
      {kInterval,
       s.activation_checkpoint_interval != 0 ||
           together.said.Find("activation_checkpointing") == nullptr,
       "activation_checkpointing asks to make activations again", "activation_checkpointing"},
  };
}

Rules ExchangeRules(const Together& together) {
  using collectives::Algorithm;
  const Settings& s = together.settings;
  const zero::ZeroOptions& zero = s.zero;
  const std::string algorithm(collectives::Name(zero.algorithm));
  const bool has_nodes = s.topology.has_value() || s.ranks_per_node.has_value();
  const std::string two_hops =
      Names({kCodes, kMethod, "optimizer.type", "zero_optimization.zero_quantized_weights",
             "zero_optimization.zero_quantized_nontrainable_weights"});
  return {
      {"brigade.accumulation",
       zero.accumulation != zero::Accumulation::kAtBoundary || zero.traits().whole_gradients,
       absl::StrCat("it needs whole gradients, which stage ", zero.stage, " does not keep"),
       kStage},
      {"brigade.algorithm", collectives::Exists(zero.reduction, zero.algorithm),
       absl::StrCat("it has no reduction ", std::string(collectives::Name(zero.reduction))),
       "brigade.reduction"},
      {"brigade.algorithm", has_nodes || zero.algorithm != Algorithm::kHierarchical,
       "it needs brigade.ranks_per_node or brigade.topology",
       "brigade.ranks_per_node brigade.topology"},
      {"brigade.ranks_per_node",
       s.topology.has_value() || KnowsOfNodes(zero.algorithm) || HasTwoHops(s),
       absl::StrCat("without brigade.topology algorithm ", algorithm, " asks for no nodes"),
       Names({"brigade.topology brigade.algorithm", two_hops})},
      {"brigade.topology",
       zero.algorithm == Algorithm::kAuto || KnowsOfNodes(zero.algorithm) || HasTwoHops(s),
       absl::StrCat("algorithm ", algorithm, " asks for no topology"),
       Names({"brigade.algorithm", two_hops})},
  };
}

// Of gradients, or moments, that ranks keep until the step and exchange there.
Rules CompressionRules(const Together& together) {
  constexpr char kOptimizer[] = "optimizer.type";
  const Settings& s = together.settings;
  const Said& said = together.said;
  const std::string gradients = said.Name("--gradient_compression", "brigade.gradient_compression");
  const bool has_gradients = s.gradient_compression.has_value();
  const bool has_moments = optim::AveragesMoments(s.optimizer);
  const std::string kind = optim::ExchangingName(s.optimizer);
  const auto is_method = [&](zero::GradientCompression method) {
    return s.gradient_compression == method;
  };
  Rules rules = {
      {gradients, !has_gradients || !has_moments,
       absl::StrCat("optimizer.type is \"", kind, "\", which exchanges first moments"),
       Names({kMethod, kOptimizer})},
      {gradients, !has_gradients || s.optimizer != optim::OptimizerKind::kLamb,
       "optimizer.type is \"Lamb\", whose norms of tensors take the gradients of slices",
       Names({kMethod, kOptimizer})},
      {gradients, !has_gradients || s.optimizer != optim::OptimizerKind::kMuon,
       "optimizer.type is \"Muon\", whose matrices take the gradients of slices",
       Names({kMethod, kOptimizer})},
      {gradients, !has_gradients || s.optimizer != optim::OptimizerKind::kAdafactor,
       "optimizer.type is \"Adafactor\", whose factors take the gradients of slices",
       Names({kMethod, kOptimizer})},
      {"brigade.gradient_compression_rank", is_method(zero::GradientCompression::kPowerSgd),
       "gradient_compression is not \"power_sgd\"", kMethod},
      {"brigade.gradient_compression_iterations", is_method(zero::GradientCompression::kPowerSgd),
       "gradient_compression is not \"power_sgd\"", kMethod},
      {"brigade.gradient_compression_density", is_method(zero::GradientCompression::kTopK),
       "gradient_compression is not \"top_k\"", kMethod},
      {"brigade.gradient_compression_start_step", has_gradients || s.open.compression,
       "gradient_compression is not given", kMethod},
  };
  rules.push_back(
      {kOptimizer,
       s.optimizer != optim::OptimizerKind::kZeroOneAdam || s.zero.stage == 0 ||
           s.zero_one.local_step_clipper == 1,
       absl::StrCat("zero_optimization.stage is ", s.zero.stage, " and local_step_clipper ",
                    s.zero_one.local_step_clipper,
                    "; local steps need whole weights and moments on each rank, as stage 0 has: "
                    "write \"local_step_clipper\": 1, with which ranks meet in each step"),
       Names({kStage, "optimizer.params.local_step_clipper"})});
  rules.push_back(
      {kOptimizer,
       s.optimizer != optim::OptimizerKind::kZeroOneAdam || together.sharing.shard_ranks == 0 ||
           s.zero_one.local_step_clipper == 1,
       absl::StrCat(ShardsName(said), " is given and local_step_clipper ",
                    s.zero_one.local_step_clipper,
                    "; the ranks of a group sum gradients in each step: write "
                    "\"local_step_clipper\": 1, with which groups meet in each step, or brigade."
                    "replicas for copies that run apart"),
       Names({kShardRanks, "optimizer.params.local_step_clipper"})});
  rules.push_back(
      {kOptimizer,
       s.optimizer != optim::OptimizerKind::kZeroOneAdam || together.sharing.context == 1 ||
           s.zero_one.local_step_clipper == 1,
       absl::StrCat("ranks share texts and local_step_clipper is ", s.zero_one.local_step_clipper,
                    "; between meetings each would attend to keys that other weights have made: "
                    "write \"local_step_clipper\": 1, with which ranks meet in each step"),
       Names({kContextRanks, "optimizer.params.local_step_clipper"})});
  const bool has_groups = together.sharing.shard_ranks > 0;
  for (const auto& [path, exchanges] :
       {std::pair(gradients, has_gradients), std::pair(std::string(kOptimizer), has_moments)}) {
    const char* const what = path == kOptimizer ? kOptimizer : kMethod;
    const auto needs = [&, name = path, given = exchanges, what](const char* others, bool is_right,
                                                                 const std::string& why) {
      rules.push_back({name, !given || is_right, why, Names({what, others})});
    };
    needs(kStage, s.zero.stage < 3 || has_groups,
          "zero_optimization.stage is 3, which has no memory for whole gradients; stages 0 to 2 "
          "have, and groups of brigade.shard_ranks exchange slices");
    needs(kCodes, !s.quantized_gradients || has_groups,
          absl::StrCat(
              said.Name("--quantized_gradients", "zero_optimization.zero_quantized_gradients"),
              " is true; gradients cross the wire in one of the two ways"));
    needs("zero_optimization.zeropp_loco_param --loco", !s.quantized_gradients || !HasLoco(said),
          absl::StrCat(said.Name("--loco", "zero_optimization.zeropp_loco_param"),
                       " is given; a state has the errors of one of the two"));
    needs(kState, !s.zero.offload.enabled(),
          "zero_optimization.offload_optimizer is given; what is exchanged goes to updates on the "
          "device alone");
    needs(kStages, together.sharing.pipeline == 1,
          "pipeline.stages (--pipeline) is above 1; weights that stages share are summed as they "
          "are");
  }
  return rules;
}

// Of groups that have a whole state each.
Rules GroupRules(const Together& together) {
  const Settings& s = together.settings;
  const bool has_both = s.mics_shard_size > 0 && s.zero.shard_ranks > 0;
  return {
      {"zero_optimization.mics_shard_size", s.mics_shard_size != 0,
       "a group has at least one rank; -1 stands for all", ""},
      {"zero_optimization.mics_shard_size", !has_both || s.mics_shard_size == s.zero.shard_ranks,
       absl::StrCat("brigade.shard_ranks is ", s.zero.shard_ranks), "brigade.shard_ranks"},
      {"zero_optimization.zero_hpz_partition_size", s.zero.stage == 3 || s.hpz_partition_size == 1,
       KeepsParameters(s.zero), kStage, kHarmless},
      {together.said.Name("--quantized_weights", "zero_optimization.zero_quantized_weights"),
       s.zero.stage > 0 || !s.quantized_weights, "stage 0 gathers no weights", kStage, kHarmless},
      {together.said.Name("--loco", "zero_optimization.zeropp_loco_param"),
       s.quantized_gradients || s.open.gradients || !HasLoco(together.said),
       "gradients are no codes without zero_quantized_gradients", kCodes, kHarmless},
      {"zero_optimization.zero_quantized_nontrainable_weights",
       s.zero.stage == 3 || !s.quantized_frozen_weights, KeepsParameters(s.zero), kStage,
       kHarmless},
  };
}

// Of trials, which a training has none of.
Rules AutotuningRules(const Together& together) {
  const AutotuningOptions& tuning = together.settings.autotuning;
  return {
      {"autotuning.enabled", !tuning.enabled, "//tune tries configurations, a training does not",
       "", kHarmless},
      {"autotuning.end_profile_step", tuning.end_profile_step >= tuning.start_profile_step,
       absl::StrCat("start_profile_step is ", tuning.start_profile_step),
       "autotuning.start_profile_step"},
      {"autotuning.max_train_micro_batch_size_per_gpu",
       tuning.max_micro_batch >= tuning.min_micro_batch,
       absl::StrCat("min_train_micro_batch_size_per_gpu is ", tuning.min_micro_batch),
       "autotuning.min_train_micro_batch_size_per_gpu"},
  };
}

// Of stages that cut weights.
Rules GatheringRules(const Together& together) {
  const Settings& s = together.settings;
  const std::string stage = absl::StrCat("zero_optimization.stage is ", s.zero.stage);
  const bool gathers = s.zero.stage == 3 || !s.prefetch_bucket_size.has_value();
  return {
      {"zero_optimization.stage3_param_persistence_threshold", s.zero.stage == 3, stage, kStage,
       kHarmless},
      {"zero_optimization.param_persistence_threshold", s.zero.stage == 3, stage, kStage,
       kHarmless},
      {"zero_optimization.stage3_prefetch_bucket_size", gathers, stage, kStage, kHarmless},
      {"zero_optimization.prefetch_bucket_size", gathers, stage, kStage, kHarmless},
      {"brigade.live_units", s.zero.stage >= 2, stage, kStage},
      {"brigade.live_units",
       !s.prefetch_bucket_size.has_value() || s.zero.stage < 3 || s.zero.live_units == 1,
       "zero_optimization.stage3_prefetch_bucket_size is 0, so nothing is gathered ahead",
       Names({kStage,
              "zero_optimization.stage3_prefetch_bucket_size "
              "zero_optimization.prefetch_bucket_size"})},
      {"zero_optimization.allgather_bucket_size",
       s.allgather_bucket_size.value_or(s.zero.bucket_elements) == s.zero.bucket_elements,
       absl::StrCat("parameters are gathered in the buckets of their gradients, and "
                    "reduce_bucket_size is ",
                    s.zero.bucket_elements),
       "zero_optimization.reduce_bucket_size", kHarmless},
  };
}

}  // namespace

Rules ZeroRules(const Together& together) {
  return Joined({FileRules(together), OffloadRules(together), ActivationRules(together),
                 ExchangeRules(together), CompressionRules(together), GroupRules(together),
                 GatheringRules(together), AutotuningRules(together)});
}

}  // namespace brigade::train
