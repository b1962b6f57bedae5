#include "brigade/train/config/config_keys.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/train/config/config_sections.h"

// Names and defaults are those of deepspeed/runtime/config.py, runtime/constants.py and
// precision_config.py, of its documentation ("DeepSpeed Configuration JSON"), and of the folders
// that have a section of their own (comm/, monitor/, profiling/, autotuning/, elasticity/, ...).

namespace brigade::train {
namespace {

constexpr NumberRange kScale = {0x1p-60, 0x1p126, "2^-60 to 2^126"};
constexpr NumberRange kMicroBatches = {1.0, 1 << 20, "1 to 2^20"};

constexpr char kFollows[] = "what follows from the others";

Keys BatchKeys(Settings& s) {
  const Auto batch = FromFlag("--batch", s.flags.batch > 0);
  return {
      {.name = "train_batch_size",
       .value = Otherwise(Whole(&s.batch.train_batch_size, kCount), kFollows),
       .meaning = "texts of a step, of all ranks; `--batch` goes before it",
       .automatic = batch},
      {.name = "train_micro_batch_size_per_gpu",
       .value = Otherwise(Whole(&s.batch.train_micro_batch_size_per_gpu, kMicroBatches), kFollows),
       .meaning = "texts of one pass of a rank",
       .automatic = batch},
      {.name = "gradient_accumulation_steps",
       .value = Otherwise(Whole(&s.batch.gradient_accumulation_steps, kMicroBatches), kFollows),
       .meaning = "passes of a rank in a step",
       .automatic = batch},
  };
}

// Of "enabled" in the two sections below.
Auto ByPrecision(const Settings& s, precision::DType dtype) {
  return FromFlag("--precision", s.flags.dtype.has_value(), s.flags.dtype == dtype);
}

Keys Fp16Keys(Settings& s) {
  optim::LossScaler& scaler = s.loss_scaler;
  return {
      {.name = "enabled",
       .value = Flag(&s.fp16),
       .meaning = "true: weights, activations and gradients are fp16, masters fp32",
       .automatic = ByPrecision(s, precision::DType::kFloat16)},
      {"loss_scale", Number(&scaler.loss_scale, {0.0, 0x1p126, "0 (dynamic) or 2^-60 to 2^126"}),
       "0: it follows overflows; else it is a constant, and what says how it changes has no "
       "effect"},
      {"initial_scale_power", Whole(&scaler.initial_scale_power, {-60.0, 126.0, "-60 to 126"}),
       "the first scale is two to this power"},
      {"loss_scale_window", Whole(&scaler.loss_scale_window, kCount),
       "steps without overflow until the scale doubles"},
      {"hysteresis", Whole(&scaler.hysteresis, {1.0, 0x1p31 - 1, "1 to 2^31 - 1"}),
       "overflows until it is halved"},
      {"consecutive_hysteresis", Flag(&scaler.consecutive_hysteresis),
       "true: a step without overflow begins the count again"},
      {"min_loss_scale", Number(&scaler.min_loss_scale, kScale), "the smallest scale"},
      {"auto_cast", Tuning(false, "inputs are token numbers")},
      {"fp16_master_weights_and_grads", Flag(&s.fp16_masters),
       "must be false where fp16 is enabled: master weights are fp32"},
  };
}

Keys Bf16Keys(Settings& s) {
  Keys keys = {
      {.name = "enabled",
       .value = Flag(&s.bf16),
       .meaning = "true: weights, activations and gradients are bf16, masters fp32",
       .automatic = ByPrecision(s, precision::DType::kBFloat16)},
      {"check_grad_overflow", Flag(&s.check_grad_overflow),
       "true: steps with infinite gradients are skipped"},
      {"immediate_grad_update",
       Tuning(false, "brigade.accumulation says when gradients are added")},
      {"bf16_master_weights_and_grads", Flag(&s.bf16_masters),
       "must be false where bf16 is enabled: master weights are fp32"},
      {"bf16_optimizer_states", Flag(&s.bf16_states),
       "must be false where bf16 is enabled: optimizer states are fp32"},
  };
  // Of the section beside it, from which they are copied.
  for (const char* const name :
       {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
        "consecutive_hysteresis", "min_loss_scale", "auto_cast"}) {
    keys.push_back({name, Tuning(nullptr, "it is of fp16; bf16 has no loss scale")});
  }
  return keys;
}

template <typename T>
Value TypeOf(T* target, std::string otherwise) {
  using precision::DType;
  return TypeNames(Otherwise(
      OneOf<T>(target,
               {{"fp32", DType::kFloat32}, {"fp16", DType::kFloat16}, {"bf16", DType::kBFloat16}}),
      std::move(otherwise)));
}

// With the name of bf16 that DeepSpeed had for this key at first.
Value CommunicationType(Settings& s) {
  return Rewritten(TypeOf(&s.zero.communication_dtype, ""),
                   [](const Json& json) { return json == Json("bfp16") ? Json("bf16") : json; });
}

Keys DataTypeKeys(Settings& s) {
  return {
      {"grad_accum_dtype", TypeOf(&s.zero.accumulator, "\"fp32\""),
       "in which gradients of micro-batches are added; DeepSpeed's default is the model's type"},
      {"param_dtype", TypeOf(&s.param_dtype, ""), "must say what fp16 and bf16 do"},
      {"buffer_dtype", Only(nullptr, "the model has no buffers")}};
}

// The same with false for 0.
Value NoneIfFalse(Value value) {
  return Rewritten(std::move(value),
                   [](const Json& json) { return json == Json(false) ? Json(0) : json; });
}

Keys ActivationKeys(Settings& s) {
  constexpr char kOnePiece[] = "activations lie in one piece, always";
  return {
      {"partition_activations", Flag(&s.partition_activations),
       "must say what `brigade.sequence_parallel` does; without effect with one tensor rank"},
      {"cpu_checkpointing", Flag(&s.cpu_checkpointing), "true: as `brigade.stash` \"host\""},
      {"contiguous_memory_optimization", Tuning(false, kOnePiece)},
      {"number_checkpoints", NoneIfFalse(Otherwise(Tuning(0, kOnePiece), ""))},
      {"synchronize_checkpoint_boundary", Tuning(false, "a step does not wait on the host")},
      {"profile", Tuning(false, "a trace has the times of operations (--trace)")},
  };
}

// The same of words that begin with a capital, ignoring case.
Value Capitalized(Value value) {
  return Rewritten(std::move(value), [](const Json& json) {
    if (!json.is_string()) return json;
    std::string word = absl::AsciiStrToLower(json.get_ref<const std::string&>());
    if (!word.empty()) word[0] = absl::ascii_toupper(static_cast<unsigned char>(word[0]));
    return Json(word);
  });
}

// deepspeed/runtime/model_checkpointing/.
Keys CheckpointKeys(Settings& s) {
  constexpr char kAllWrite[] = "all ranks write";
  return {
      {"use_node_local_storage", Flag(&s.use_node_local_storage),
       "true: a file for each rank, on the disk of its host"},
      {"load_universal", Either(false, "any stage and number of ranks loads what any has written")},
      {"tag_validation",
       Capitalized(OneOf<int>(nullptr, {{"Warn", 0}, {"Ignore", 0}, {"Fail", 0}})),
       "any is accepted, in upper or lower case: all ranks compare the step, which folders have "
       "their names from"},
      {.name = "parallel_write",
       .meaning = "Who writes a checkpoint.",
       .keys = {{"pipeline_stage", Tuning(false, kAllWrite)}}},
      {"checkpoint_serialization", Tuning(true, "checkpoints are safetensors")},
      {"writer", Tuning(nullptr, kAllWrite)},
  };
}

// deepspeed/monitor/config.py.
Keys MonitorKeys(Settings::MonitorFolder& folder, const char* what) {
  return {{"enabled", Flag(&folder.enabled), what},
          {"output_path", AnyText(&folder.output_path),
           "a folder, from where the training is started; it is made"},
          {"job_name", Text(&folder.job_name), "the folder inside it"}};
}

// Sections of what there is not.
Keys OtherSections() {
  constexpr char kMetrics[] = "tensorboard, csv_monitor and --metrics write what a step has";
  constexpr char kEveryText[] = "texts are drawn by seed and step";
  constexpr char kNoQuantization[] = "nothing is quantized";
  return {
      {"amp", Off("fp16 and bf16 say it")},
      {"comet", Off(kMetrics)},
      {"comms_logger", Off("the report has a table of what each group of ranks has sent")},
      {"compile", Off("")},
      {"compression_training", Off("")},
      {"curriculum_learning", Off(kEveryText)},
      // Of this section DeepSpeed's engine asks these two alone.
      {"data_efficiency", Off(kEveryText, ByDefault::kOff,
                              {"data_routing.random_ltd", "data_sampling.curriculum_learning"})},
      {"datastates_ckpt", Off("--save writes beside the steps, always", ByDefault::kOn)},
      {"eigenvalue", Off(kNoQuantization)},
      {"elasticity", Off("a checkpoint is loaded by any number of ranks")},
      {"expert_parallel", Off("")},
      {"hybrid_engine", Off("")},
      {"nebula", Off("--save writes beside the steps, always")},
      {"progressive_layer_drop", Off("")},
      {"quantize_training", Off(kNoQuantization)},
      {"sparse_attention", Off("", ByDefault::kOn)},
      {"torch_autocast", Off("fp16 and bf16 say it")},
      {"wandb", Off("`wandb sync` uploads what tensorboard writes")},
      {"weight_quantization", Off(kNoQuantization, ByDefault::kOn)},
  };
}

Keys OtherKeys() {
  constexpr char kAfterTheSum[] = "gradients are divided after the sum";
  constexpr char kReport[] = "the report at the end has it, always";
  return {
      {"disable_allgather", Only(false, "parameters are always all-gathered")},
      {"data_parallel_size", NotSupported("the ranks that share neither model nor texts share the "
                                          "batch")},
      {"dump_state", Tuning(false, "the first lines say what is trained, always")},
      {"fp32_allreduce", Only(false, "communication_data_type says it here")},
      {"gradient_allreduce_op", Only("mean", "gradients are means over the batch")},
      {"gradient_predivide_factor", Only(1.0, kAfterTheSum)},
      {"graph_harvesting", Tuning(false, "there are no graphs of kernels")},
      {"log_level", Tuning(nullptr, "there is no log")},
      {"managed_gradient_accumulation", Only(true, "a step has gradient_accumulation_steps")},
      {"memory_breakdown", Tuning(false, kReport)},
      {"prescale_gradients", Only(false, kAfterTheSum)},
      {.name = "seq_parallel_communication_data_type",
       .value = TypeNames(Only("fp32", "communication_data_type says it")),
       .also = "seq_parallel_comm_data_type"},
      {"sparse_gradients", Only(false, "all gradients are dense")},
      {"timers", Tuning(nullptr, "lines of progress have tokens per second, always")},
      {"use_data_before_expert_parallelism", Only(false, "there are no experts")},
      {"vocabulary_size", Tuning(nullptr, "the model or its tokenizer says it")},
      {"zero_allow_untested_optimizer", Either(false, "ZeRO works with every optimizer there is")},
      {"zero_force_ds_cpu_optimizer", Either(true, "there is one optimizer on the host")},
  };
}

}  // namespace

Value TypeNames(Value value) {
  return Rewritten(std::move(value), [](const Json& json) {
    const auto type =
        json.is_string() ? precision::ParseTrainingFormat(json.get<std::string>()) : std::nullopt;
    return type.has_value() ? Json(std::string(precision::ShortName(*type))) : json;
  });
}

Keys ConfigKeys(Settings& s) {
  Keys keys = BatchKeys(s);
  keys.insert(
      keys.end(),
      {
          {"gradient_clipping", Number(&s.gradient_clipping, kNotNegative),
           "the norm to which gradients are cut; 0: none. DeepSpeed's default is 1.0 since 0.19.3, "
           "and was none before"},
          {"communication_data_type", CommunicationType(s),
           "in which gradients are sent; by default their own. \"bfp16\" is bf16 too"},
          {.name = "steps_per_print",
           .value = Whole(&s.steps_per_print, kCount),
           .meaning = "a line of progress every so many steps; by default every 5 s",
           .automatic = OurDefault()},
          {.name = "dataloader_drop_last",
           .value = Flag(&s.drop_last),
           .meaning = "true: samples behind the last whole batch of an epoch are left out; false: "
                      "they are a short step. `examples/gpt` has whole batches alone"},
          {.name = "wall_clock_breakdown",
           .value = Flag(&s.wall_clock_breakdown),
           .meaning = "true: a line of progress has the parts of a step behind it, in "
                      "milliseconds, and monitors have Train/Samples/elapsed_time_ms_* "
                      "(`docs/monitoring.md`)",
           .automatic = OurDefault()},
          {"sequence_parallel_size", Otherwise(Whole(&s.sequence_parallel_size, kRanks), "1"),
           "ranks that share each text (`--context_parallel`)"},
          OptimizerKey(s),
          SchedulerKey(s),
          {.name = "fp16",
           .meaning = "Without fp16 and bf16 everything is fp32.",
           .keys = Fp16Keys(s),
           .has_switch = true},
          {.name = "bf16",
           .meaning = "Of fp16 and bf16 one at most is enabled.",
           .keys = Bf16Keys(s),
           .also = "bfloat16",
           .has_switch = true},
          {.name = "data_types", .meaning = "Types beside those.", .keys = DataTypeKeys(s)},
          {.name = "zero_optimization",
           .meaning = "What ranks that share the batch keep of weights, gradients and state.",
           .keys = ZeroKeys(s)},
          {.name = "activation_checkpointing",
           .meaning =
               "The section, empty too, is as `brigade.recompute` \"block\": DeepSpeed makes "
               "again what the model says.",
           .keys = ActivationKeys(s)},
          {.name = "aio",
           .meaning = "Of files; without effect where nothing is in files.",
           .keys = AioKeys(s)},
          {.name = "checkpoint",
           .meaning = "Of `--save` and `--resume`.",
           .keys = CheckpointKeys(s)},
          {.name = "pipeline",
           .meaning = "Ranks that share the layers of the model (`docs/pipeline.md`).",
           .keys = PipelineKeys(s)},
          {.name = "tensor_parallel",
           .meaning = "Ranks that share the matrices of the model (`parallel/README.md`).",
           .keys = TensorKeys(s)},
          {.name = "autotuning",
           .meaning = "Of the tuner, `//tune` (`docs/tuning.md`).",
           .keys = AutotuningKeys(s)},
          {.name = "tensorboard",
           .meaning = "Event files (`docs/monitoring.md`).",
           .keys = MonitorKeys(s.tensorboard, "true: values of each step, for TensorBoard"),
           .has_switch = true},
          {.name = "csv_monitor",
           .meaning = "CSV, a file for each value (`docs/monitoring.md`).",
           .keys = MonitorKeys(s.csv_monitor, "true: values of each step, as CSV"),
           .has_switch = true},
          ProfilerKey(s),
          {.name = "brigade", .meaning = "What DeepSpeed has no key for.", .keys = OwnKeys(s)},
      });
  for (const Keys& part : {OtherKeys(), OtherSections()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

}  // namespace brigade::train
