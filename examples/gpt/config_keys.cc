#include "brigade/examples/gpt/config_keys.h"

#include <initializer_list>
#include <utility>
#include <variant>

#include "brigade/examples/gpt/parallel_keys.h"
#include "brigade/parallel/tensor/row_pieces.h"

namespace brigade::gpt {
namespace {

constexpr double kMaxSteps = optim::kMaxLearningRates / 4;
// Whole numbers beyond are not exact in JSON.
constexpr double kLargest = int64_t{1} << 53;
constexpr double kLargestFloat = 3.0e38;

constexpr NumberRange kPositive = {0x1p-149, kLargestFloat, "more than 0, as a float too"};
constexpr NumberRange kNotNegative = {0.0, kLargestFloat, "0 or more, and finite as a float"};
constexpr NumberRange kBelowOne = {0.0, 1.0 - 0x1p-24, "0 or more, and less than 1"};
constexpr NumberRange kUnit = {0.0, 1.0, "0 to 1"};
constexpr NumberRange kScale = {0x1p-60, 0x1p126, "2^-60 to 2^126"};
constexpr NumberRange kSteps = {1.0, kMaxSteps, "1 to 2^24"};
constexpr NumberRange kMicroBatches = {1.0, 1 << 20, "1 to 2^20"};
constexpr NumberRange kRanks = {1.0, 1 << 15, "1 to 2^15"};
constexpr NumberRange kPieces = {1.0, parallel::kMostPieces, "1 to 256"};
constexpr NumberRange kCount = {1.0, kLargest, "1 or more"};

constexpr char kMustBeGiven[] = "it has no default";

// Names that nothing else is known of are not supported yet.
Keys With(Keys supported, std::initializer_list<const char*> not_supported) {
  for (const char* name : not_supported) supported.push_back({name});
  return supported;
}

Keys AdamKeys(Settings& s, Read adam_w_mode) {
  optim::ParameterGroup& group = s.group;
  return {
      {"lr", Number(&group.lr, kNotNegative)},
      {"betas", Pair(&group.beta1, &group.beta2, kBelowOne)},
      {"eps", Number(&group.eps, kPositive)},
      {"weight_decay", Number(&group.weight_decay, kNotNegative)},
      {"adam_w_mode", std::move(adam_w_mode)},
      {"bias_correction", Only(true, "the moments are always corrected")},
      {"amsgrad", Only(false, "there is no AMSGrad here")},
      {"torch_adam", Only(false, "there is one Adam here, and it is not PyTorch's")},
      {"fused"},
      {"max_grad_norm", Only(0.0, "gradient_clipping says it here")},
  };
}

Keys OptimizerTypes(Settings& s) {
  using Kind = optim::OptimizerKind;
  optim::ParameterGroup& group = s.group;
  return With(
      {
          {"Adam", Set(&s.optimizer, Kind::kAdam), AdamKeys(s, Flag(&s.adam_w_mode))},
          {"AdamW", Set(&s.optimizer, Kind::kAdamW),
           AdamKeys(s, Only(true, "that is what AdamW means; with type Adam it may be false"))},
          {"SGD",
           Set(&s.optimizer, Kind::kSgd),
           {
               {"lr", Number(&group.lr, kNotNegative)},
               {"momentum", Number(&group.momentum, kBelowOne)},
               {"dampening", Number(&group.dampening, kUnit)},
               {"weight_decay", Number(&group.weight_decay, kNotNegative)},
               {"nesterov", Flag(&group.nesterov)},
               {"maximize", Only(false, "losses are minimised")},
           }},
      },
      {"Adagrad", "Lamb", "Lion", "MuAdam", "MuAdamW", "Muon", "MuSGD", "OneBitAdam", "OneBitLamb",
       "ZeroOneAdam"});
}

// Of a schedule: its own, and what all have.
Keys ScheduleKeys(Keys keys) {
  keys.push_back({"last_batch_iteration", Only(-1, "schedules begin at the beginning")});
  return keys;
}

template <typename Schedule>
Key WarmupType(Schedule& schedule) {
  return {"warmup_type", OneOf<optim::WarmupType>(&schedule.warmup_type,
                                                  {{"log", optim::WarmupType::kLog},
                                                   {"linear", optim::WarmupType::kLinear}})};
}

Keys SchedulerTypes(Settings& s) {
  auto& warmup = std::get<optim::WarmupLR>(s.schedules[1]);
  auto& decay = std::get<optim::WarmupDecayLR>(s.schedules[2]);
  auto& cosine = std::get<optim::WarmupCosineLR>(s.schedules[3]);
  auto& cycle = std::get<optim::OneCycle>(s.schedules[4]);
  return {
      {"WarmupLR", Set(&s.schedule, 1),
       ScheduleKeys({
           {"warmup_min_lr", Number(&warmup.warmup_min_lr, kNotNegative)},
           {"warmup_max_lr", Number(&warmup.warmup_max_lr, kNotNegative)},
           {"warmup_num_steps", Whole(&warmup.warmup_num_steps, kSteps)},
           WarmupType(warmup),
       })},
      {"WarmupDecayLR", Set(&s.schedule, 2),
       ScheduleKeys({
           {"total_num_steps", Whole(&decay.total_num_steps, kSteps), {}, {}, kMustBeGiven},
           {"warmup_min_lr", Number(&decay.warmup_min_lr, kNotNegative)},
           {"warmup_max_lr", Number(&decay.warmup_max_lr, kNotNegative)},
           {"warmup_num_steps", Whole(&decay.warmup_num_steps, kSteps)},
           WarmupType(decay),
       })},
      {"WarmupCosineLR", Set(&s.schedule, 3),
       ScheduleKeys({
           {"total_num_steps", Whole(&cosine.total_num_steps, kSteps), {}, {}, kMustBeGiven},
           {"warmup_min_ratio", Number(&cosine.warmup_min_ratio, kNotNegative)},
           {"warmup_num_steps", Whole(&cosine.warmup_num_steps, kSteps)},
           {"cos_min_ratio", Number(&cosine.cos_min_ratio, kNotNegative)},
           WarmupType(cosine),
       })},
      {"OneCycle", Set(&s.schedule, 4),
       ScheduleKeys({
           {"cycle_min_lr", Number(&cycle.cycle_min_lr, kNotNegative), {}, {}, kMustBeGiven},
           {"cycle_max_lr", Number(&cycle.cycle_max_lr, kNotNegative), {}, {}, kMustBeGiven},
           {"decay_lr_rate", Number(&cycle.decay_lr_rate, kNotNegative)},
           {"cycle_first_step_size", Whole(&cycle.cycle_first_step_size, kSteps)},
           {"cycle_second_step_size", Whole(&cycle.cycle_second_step_size, kSteps)},
           {"decay_step_size", Whole(&cycle.decay_step_size, {0.0, kMaxSteps, "0 to 2^24"})},
           // Brigade's: where a decay, which never ends, is cut.
           {"total_num_steps", Whole(&cycle.total_num_steps, kSteps)},
           {"cycle_momentum",
            Only(false, "momentum is a constant here"),
            {},
            {},
            "DeepSpeed's default is true, but momentum is a constant here: write false"},
           {"cycle_first_stair_count"},
           {"cycle_second_stair_count"},
           {"cycle_min_mom"},
           {"cycle_max_mom"},
           {"decay_mom_rate"},
       })},
      {"LRRangeTest"},
  };
}

Keys Fp16Keys(Settings& s) {
  optim::LossScaler& scaler = s.loss_scaler;
  return {
      {"enabled", Flag(&s.fp16), {}, {}, "write true or false"},
      {"loss_scale", Number(&scaler.loss_scale, {0.0, 0x1p126, "0 (dynamic) or 2^-60 to 2^126"})},
      {"initial_scale_power", Whole(&scaler.initial_scale_power, {-60.0, 126.0, "-60 to 126"})},
      {"loss_scale_window", Whole(&scaler.loss_scale_window, kCount)},
      {"hysteresis", Whole(&scaler.hysteresis, {1.0, 0x1p31 - 1, "1 to 2^31 - 1"})},
      {"consecutive_hysteresis", Flag(&scaler.consecutive_hysteresis)},
      {"min_loss_scale", Number(&scaler.min_loss_scale, kScale)},
      {"auto_cast", Only(false, "inputs are token numbers")},
      {"fp16_master_weights_and_grads", Only(false, "master weights are float32")},
  };
}

Keys Bf16Keys(Settings& s) {
  return {
      {"enabled", Flag(&s.bf16), {}, {}, "write true or false"},
      {"check_grad_overflow", Flag(&s.check_grad_overflow)},
      {"immediate_grad_update"},
      {"bf16_master_weights_and_grads", Only(false, "master weights are float32")},
      {"bf16_optimizer_states", Only(false, "optimizer states are float32")},
  };
}

Keys CheckpointKeys(Settings& s) {
  return {
      // Any stage and number of ranks reads what any has written.
      {"load_universal", Flag(nullptr)},
      {"use_node_local_storage", Flag(&s.use_node_local_storage)},
      // Folders are named by the step, which all ranks compare.
      {"tag_validation", OneOf<int>(nullptr, {{"Warn", 0}, {"Ignore", 0}, {"Fail", 0}})},
      {"parallel_write", nullptr, {{"pipeline_stage"}}},
      {"checkpoint_serialization"},
      {"writer"},
  };
}

// "device" of the two sections below.
Read TierOf(device::Tier* target) {
  return OneOf<device::Tier>(target, {{"none", device::Tier::kDevice},
                                      {"cpu", device::Tier::kHost},
                                      {"nvme", device::Tier::kFile}});
}

Keys OffloadOptimizerKeys(Settings& s) {
  zero::OffloadOptions& offload = s.zero.offload;
  return With(
      {
          {"device", TierOf(&offload.optimizer_state)},
          {"pin_memory", Only(true, "for a GPU it is page-locked, always")},
          {"ratio", Number(&offload.host_share, kUnit)},
          {"super_offload", Only(false,
                                 "an update that is undone by inverse arithmetic is not "
                                 "exact")},
          {"nvme_path", Text(&s.nvme_path)},
          {"buffer_count", Whole(&s.state_arrays, {4.0, 1 << 20, "4 to 2^20"})},
          {"pipeline_read", Only(true, "the next chunk is read beside the update, always")},
          {"pipeline_write", Only(true, "the last chunk is written beside the update, always")},
          {"fast_init", Only(false, "the state is written chunk by chunk")},
      },
      {"cpuadam_cores_perc", "pipeline"});
}

Keys OffloadParameterKeys(Settings& s) {
  constexpr const char* kSizes = "sizes and number of buffers follow from the buckets";
  return {
      {"device", TierOf(&s.zero.offload.parameters)},
      {"pin_memory", Only(true, "for a GPU it is page-locked, always")},
      {"nvme_path", Text(&s.parameters_nvme_path)},
      {"buffer_count", Only(nullptr, kSizes)},
      {"buffer_size", Only(nullptr, kSizes)},
      {"max_in_cpu", Only(0.0, "all weights are in the file, or none")},
  };
}

// Of files.
Keys AioKeys(device::FileOptions& file) {
  constexpr const char* kDepth = "queue_depth says how much is in flight";
  return {
      {"block_size", Whole(&file.block_bytes, {4096.0, 1 << 30, "4096 to 2^30"})},
      {"queue_depth", Whole(&file.queue_depth, {1.0, 1024.0, "1 to 1024"})},
      {"single_submit", Only(false, "requests that are there are sent together")},
      {"overlap_events", Only(true, "requests are sent as others end, always")},
      {"use_gds", Only(false, "files are read and written by the host")},
      // DeepSpeed's documentation has the second name, its code the first.
      {"intra_op_parallelism", Only(1, kDepth)},
      {"thread_count", Only(1, kDepth)},
  };
}

Keys ZeroKeys(Settings& s) {
  zero::ZeroOptions& zero = s.zero;
  return With(
      {
          {"stage", Whole(&zero.stage, {0.0, zero::kStages - 1, "0 to 3"})},
          {"reduce_bucket_size", Whole(&zero.bucket_elements, kCount)},
          {"allgather_bucket_size", Whole(&s.allgather_bucket_size, kCount)},
          {"overlap_comm", Flag(&zero.overlap_comm)},
          {"stage3_prefetch_bucket_size",
           Whole(&s.prefetch_bucket_size,
                 {0.0, 0.0, "0: units are gathered whole, brigade.live_units says how many"})},
          {"stage3_param_persistence_threshold",
           Whole(&zero.persistence_threshold, {0.0, kLargest, "0 or more"})},
          {"contiguous_gradients", Only(true, "gradients are always written into buckets")},
          {"reduce_scatter", Only(true, "gradients are always reduce-scattered")},
          {"allgather_partitions", Only(true, "parameters are always all-gathered")},
          {"ignore_unused_parameters", Only(true, "a gradient that is not written counts as zero")},
          {"offload_optimizer", nullptr, OffloadOptimizerKeys(s)},
          {"offload_param", nullptr, OffloadParameterKeys(s)},
          {"sub_group_size", Whole(&zero.offload.chunk_elements, kCount)},
          {"zenflow", Only(nullptr, "it changes results: most gradients are applied late")},
          {"round_robin_gradients", Only(false, "the bucket's slices are what a rank owns")},
          {"zero_quantized_weights", Only(false, "nothing is quantized")},
          {"zero_quantized_nontrainable_weights", Only(false, "nothing is quantized")},
          {"zero_quantized_gradients", Only(false, "nothing is quantized")},
      },
      {"cpu_offload",
       "cpu_offload_param",
       "cpu_offload_use_pin_memory",
       "elastic_checkpoint",
       "legacy_stage1",
       "load_from_fp32_weights",
       "memory_efficient_linear",
       "mics_hierarchical_params_gather",
       "mics_shard_size",
       "override_module_apply",
       "pipeline_loading_checkpoint",
       "stage3_gather_16bit_weights_on_model_save",
       "stage3_gather_fp16_weights_on_model_save",
       "stage3_max_live_parameters",
       "stage3_max_reuse_distance",
       "stage3_model_persistence_threshold",
       "stage3_module_granularity_threshold",
       "stage3_use_all_reduce_for_fetch_params",
       "sub_group_size",
       "use_multi_rank_bucket_allreduce",
       "zero_hpz_partition_size",
       "zeropp_loco_param"});
}

// Of activations that are made again. The section itself asks for it.
Keys ActivationKeys(Settings& s) {
  return {
      {"partition_activations", Flag(&s.partition_activations)},
      {"cpu_checkpointing", Flag(&s.cpu_checkpointing)},
      {"contiguous_memory_optimization", Only(false, "activations lie in one piece, always")},
      {"number_checkpoints", Only(nullptr, "activations lie in one piece, always")},
      {"synchronize_checkpoint_boundary", Only(false, "a step does not wait on the host")},
      {"profile", Only(false, "a trace has the times of operations (--trace)")},
  };
}

Read Policy(std::optional<recompute::Policy>* target) {
  return [=](const Json& value) -> std::string {
    const auto policy = value.is_string() ? recompute::ParsePolicy(value.get<std::string>())
                                          : absl::InvalidArgumentError("no text");
    if (!policy.ok()) return "none, block, selective, segments:K or budget:BYTES";
    *target = *policy;
    return "";
  };
}

// What DeepSpeed has no key for.
Keys BrigadeKeys(Settings& s) {
  using collectives::Algorithm;
  using collectives::Reduction;
  using kernels::AtMinimum;
  using zero::Accumulation;
  return {
      {"accumulation", OneOf<Accumulation>(&s.zero.accumulation,
                                           {{"every_micro_batch", Accumulation::kEveryMicroBatch},
                                            {"at_boundary", Accumulation::kAtBoundary}})},
      {"algorithm",
       OneOf<Algorithm>(&s.zero.algorithm, {{"auto", Algorithm::kAuto},
                                            {"direct", Algorithm::kDirect},
                                            {"ring", Algorithm::kRing},
                                            {"bidirectional_ring", Algorithm::kBidirectionalRing},
                                            {"halving_doubling", Algorithm::kHalvingDoubling},
                                            {"hierarchical", Algorithm::kHierarchical},
                                            {"double_tree", Algorithm::kDoubleTree},
                                            {"native", Algorithm::kNative}})},
      {"at_minimum_loss_scale",
       OneOf<AtMinimum>(&s.loss_scaler.at_minimum,
                        {{"error", AtMinimum::kError}, {"clamp", AtMinimum::kClamp}})},
      {"context_exchange", OneOf<std::optional<ContextExchange>>(
                               &s.context_exchange, {{"ulysses", ContextExchange::kUlysses},
                                                     {"ring", ContextExchange::kRing},
                                                     {"a2a", ContextExchange::kUlysses},
                                                     {"p2p", ContextExchange::kRing}})},
      {"reduction",
       OneOf<Reduction>(&s.zero.reduction, {{"rounded_once", Reduction::kRoundedOnce},
                                            {"rounded_per_hop", Reduction::kRoundedPerHop},
                                            {"fp32_partials", Reduction::kFp32Partials}})},
      {"delay_update", Flag(&s.zero.offload.delay_update)},
      {"delay_warm_up", Whole(&s.zero.offload.delay_warm_up, {0.0, kLargest, "0 or more"})},
      {"dropout", Number(&s.dropout, kBelowOne)},
      {"file_checksums", Flag(&s.zero.offload.file.checksums)},
      {"file_direct", Flag(&s.zero.offload.file.direct)},
      {"file_directory", Text(&s.file_directory)},
      {"file_engine",
       OneOf<device::FileEngineKind>(&s.zero.offload.file.engine,
                                     {{"auto", device::FileEngineKind::kAuto},
                                      {"io_uring", device::FileEngineKind::kIoUring},
                                      {"threads", device::FileEngineKind::kThreads}})},
      {"file_limit", Whole(&s.zero.offload.file_limit_bytes, kCount)},
      {"keep_gathered", Flag(&s.keep_gathered)},
      {"live_units", Whole(&s.zero.live_units, {1.0, 1 << 20, "1 to 2^20"})},
      {"partition", Partition(s)},
      {"ranks_per_node", Whole(&s.ranks_per_node, {1.0, 1 << 20, "1 to 2^20"})},
      {"recompute", Policy(&s.recompute)},
      {"recompute_times",
       OneOf<RecomputeTimes>(&s.recompute_times, {{"operations", RecomputeTimes::kOperations},
                                                  {"measured", RecomputeTimes::kMeasured}})},
      {"schedule", Schedule(s)},
      {"sequence_parallel", Flag(&s.sequence_parallel)},
      {"stash", OneOf<std::optional<recompute::StashTier>>(
                    &s.stash, {{"none", recompute::StashTier::kNone},
                               {"host", recompute::StashTier::kHost},
                               {"file", recompute::StashTier::kFile}})},
      {"tensor_pieces", Whole(&s.tensor_pieces, kPieces)},
      {"tensor_shards", Whole(&s.tensor_shards, kRanks)},
      {"tensor_sums",
       OneOf<parallel::SumWire>(&s.sum_wire, {{"fp32", parallel::SumWire::kFloat32},
                                              {"model", parallel::SumWire::kModel}})},
      {"tied_gradients", OneOf<bool>(&s.zero.tied_apart, {{"apart", true}, {"together", false}})},
      {"topology", Text(&s.topology)},
  };
}

}  // namespace

Keys ConfigKeys(Settings& s) {
  using precision::DType;
  return With(
      {
          {"train_batch_size", Whole(&s.batch.train_batch_size, kCount)},
          {"train_micro_batch_size_per_gpu",
           Whole(&s.batch.train_micro_batch_size_per_gpu, kMicroBatches)},
          {"gradient_accumulation_steps",
           Whole(&s.batch.gradient_accumulation_steps, kMicroBatches)},
          {"gradient_clipping", Number(&s.gradient_clipping, kNotNegative)},
          {"optimizer",
           nullptr,
           {},
           OptimizerTypes(s),
           R"(one is needed, like {"type": "AdamW", "params": {"lr": 0.001}})"},
          {"scheduler", nullptr, {}, SchedulerTypes(s)},
          {"fp16", nullptr, Fp16Keys(s)},
          {"bf16", nullptr, Bf16Keys(s)},
          {"data_types",
           nullptr,
           {{"grad_accum_dtype", OneOf<DType>(&s.zero.accumulator, {{"fp32", DType::kFloat32},
                                                                    {"fp16", DType::kFloat16},
                                                                    {"bf16", DType::kBFloat16}})}}},
          {"communication_data_type",
           OneOf<std::optional<DType>>(
               &s.zero.communication_dtype,
               {{"fp32", DType::kFloat32}, {"fp16", DType::kFloat16}, {"bf16", DType::kBFloat16}})},
          {"zero_optimization", nullptr, ZeroKeys(s)},
          {"activation_checkpointing", nullptr, ActivationKeys(s)},
          {"aio", nullptr, AioKeys(s.zero.offload.file)},
          {"checkpoint", nullptr, CheckpointKeys(s)},
          {"pipeline", nullptr, PipelineKeys(s)},
          {"sequence_parallel_size", Whole(&s.sequence_parallel_size, kRanks)},
          {"tensor_parallel", nullptr, TensorKeys(s)},
          {"brigade", nullptr, BrigadeKeys(s)},
          // A permission that is not needed here: ZeRO works with every optimizer that there is.
          {"zero_allow_untested_optimizer", Flag(nullptr)},
          {"disable_allgather", Only(false, "parameters are always all-gathered")},
          {"dump_state", Only(false, "no state is printed")},
          {"fp32_allreduce", Only(false, "communication_data_type says it here")},
          {"gradient_predivide_factor", Only(1.0, "gradients are divided after the sum")},
          {"memory_breakdown", Only(false, "the report at the end has it, always")},
          {"prescale_gradients", Only(false, "gradients are divided after the sum")},
          {"sparse_gradients", Only(false, "all gradients are dense")},
          {"wall_clock_breakdown", Only(false, "the report at the end has it, always")},
      },
      {"amp",
       "autotuning",
       "comet",
       "comms_logger",
       "compile",
       "compression_training",
       "csv_monitor",
       "curriculum_learning",
       "data_efficiency",
       "dataloader_drop_last",
       "eigenvalue",
       "elasticity",
       "flops_profiler",
       "hybrid_engine",
       "nebula",
       "progressive_layer_drop",
       "quantize_training",
       "seq_parallel_communication_data_type",
       "sparse_attention",
       "steps_per_print",
       "tensorboard",
       "torch_autocast",
       "vocabulary_size",
       "wandb",
       "weight_quantization",
       "zero_force_ds_cpu_optimizer"});
}

}  // namespace brigade::gpt
