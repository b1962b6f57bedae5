#include "brigade/train/config/config.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/config/small_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// Files and texts that are right, and what they mean: of all sections but those of optimizers
// (optimizer_keys_test.cc) and of ranks (parallel_keys_test.cc).

namespace brigade::train {
namespace {

using optim::OptimizerKind;
using precision::DType;

std::string Example(const char* name) { return absl::StrCat("examples/gpt/configs/", name); }

TEST(ConfigTest, ReadsTheExampleOfSgdInFp16AndStage2) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, ReadConfig(Example("sgd_fp16_zero2.json"), 4));
  EXPECT_EQ(config.batch, (zero::BatchSizes{4, 1, 1}));
  const zero::ZeroOptions& zero = config.zero;
  EXPECT_EQ(zero.stage, 2);
  EXPECT_EQ(zero.dtype, DType::kFloat16);
  EXPECT_EQ(zero.micro_batches, 1);
  EXPECT_EQ(zero.max_grad_norm, std::numeric_limits<double>::infinity());
  EXPECT_EQ(zero.optimizer.kind, OptimizerKind::kSgd);
  ASSERT_EQ(zero.optimizer.groups.size(), 1u);
  EXPECT_EQ(zero.optimizer.groups[0].lr, 0.001);
  EXPECT_EQ(zero.optimizer.groups[0].momentum, 0.9);
  EXPECT_TRUE(std::holds_alternative<optim::ConstantLR>(zero.optimizer.groups[0].schedule));
  EXPECT_TRUE(zero.loss_scaler.dynamic());
  EXPECT_EQ(zero.loss_scaler.initial_scale_power, 16);
  EXPECT_EQ(zero.loss_scaler.loss_scale_window, 1000);
  EXPECT_EQ(zero.loss_scaler.hysteresis, 2);
  EXPECT_EQ(zero.loss_scaler.min_loss_scale, 1.0f);
  EXPECT_TRUE(zero.loss_scaler.check_overflow);
}

TEST(ConfigTest, ReadsTheExampleOfAdamWInBf16AndStage3) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, ReadConfig(Example("adamw_bf16_zero3.json"), 4));
  EXPECT_EQ(config.batch, (zero::BatchSizes{32, 4, 2}));
  const zero::ZeroOptions& zero = config.zero;
  EXPECT_EQ(zero.stage, 3);
  EXPECT_EQ(zero.dtype, DType::kBFloat16);
  EXPECT_EQ(zero.loss_scaler.loss_scale, 1.0f);
  EXPECT_EQ(zero.micro_batches, 2);
  EXPECT_EQ(zero.max_grad_norm, 1.0);
  EXPECT_EQ(zero.bucket_elements, 500000);
  EXPECT_EQ(zero.persistence_threshold, 1000);
  EXPECT_EQ(zero.live_units, 3);
  EXPECT_EQ(zero.optimizer.kind, OptimizerKind::kAdamW);
  const optim::ParameterGroup& group = zero.optimizer.groups[0];
  EXPECT_EQ(group.lr, 0.002);
  EXPECT_EQ(group.beta1, 0.9);
  EXPECT_EQ(group.beta2, 0.95);
  EXPECT_EQ(group.eps, 1e-8);
  EXPECT_EQ(group.weight_decay, 0.1);
  const auto& cosine = std::get<optim::WarmupCosineLR>(group.schedule);
  EXPECT_EQ(cosine.total_num_steps, 400);
  EXPECT_EQ(cosine.warmup_num_steps, 40);
  EXPECT_EQ(cosine.cos_min_ratio, 0.1);
}

TEST(ConfigTest, ReadsTheExampleOfAdamInFp32AndStage0) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, ReadConfig(Example("adam_fp32_zero0.json"), 4));
  EXPECT_EQ(config.batch, (zero::BatchSizes{32, 8, 1}));
  EXPECT_EQ(config.zero.stage, 0);
  EXPECT_EQ(config.zero.dtype, DType::kFloat32);
  EXPECT_EQ(config.zero.loss_scaler.loss_scale, 1.0f);
  EXPECT_EQ(config.zero.optimizer.kind, OptimizerKind::kAdam);
  const auto& warmup = std::get<optim::WarmupLR>(config.zero.optimizer.groups[0].schedule);
  EXPECT_EQ(warmup.warmup_num_steps, 20);
  EXPECT_EQ(warmup.warmup_type, optim::WarmupType::kLinear);
  EXPECT_FALSE(warmup.warmup_max_lr.has_value());
}

TEST(ConfigTest, HasDeepSpeedsDefaultsAndZeroOptionsForMemoryAndSpeed) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(""));
  const zero::ZeroOptions defaults;
  EXPECT_EQ(config.batch, (zero::BatchSizes{8, 2, 1}));
  EXPECT_EQ(config.zero.stage, 0);
  EXPECT_EQ(config.zero.dtype, DType::kFloat32);
  EXPECT_EQ(config.zero.accumulator, DType::kFloat32);
  EXPECT_EQ(config.zero.bucket_elements, defaults.bucket_elements);
  EXPECT_EQ(config.zero.overlap_comm, defaults.overlap_comm);
  EXPECT_EQ(config.zero.live_units, defaults.live_units);
  EXPECT_EQ(config.zero.optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(config.zero.optimizer.groups[0].lr, 0.001);
  EXPECT_EQ(config.zero.optimizer.groups[0].weight_decay, 0.0);
}

TEST(ConfigTest, ReadsAllThatLossScalingHas) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig dynamic, With(R"(, "fp16": {"enabled": true,
      "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
      "consecutive_hysteresis": true, "min_loss_scale": 4, "auto_cast": false},
      "bf16": {"enabled": false}, "brigade": {"at_minimum_loss_scale": "clamp"})"));
  const optim::LossScaler& scaler = dynamic.zero.loss_scaler;
  EXPECT_TRUE(scaler.dynamic());
  EXPECT_EQ(scaler.initial_scale_power, 12);
  EXPECT_EQ(scaler.loss_scale_window, 500);
  EXPECT_EQ(scaler.hysteresis, 3);
  EXPECT_TRUE(scaler.consecutive_hysteresis);
  EXPECT_EQ(scaler.min_loss_scale, 4.0f);
  EXPECT_EQ(scaler.at_minimum, kernels::AtMinimum::kClamp);

  ASSERT_OK_AND_ASSIGN(const TrainConfig constant,
                       With(R"(, "fp16": {"enabled": true, "loss_scale": 128})"));
  EXPECT_EQ(constant.zero.loss_scaler.loss_scale, 128.0f);

  ASSERT_OK_AND_ASSIGN(const TrainConfig off,
                       With(R"(, "fp16": {"enabled": false, "loss_scale": 128, "hysteresis": 2},
                               "bf16": {"enabled": true, "check_grad_overflow": false})"));
  EXPECT_EQ(off.zero.dtype, DType::kBFloat16);
  EXPECT_EQ(off.zero.loss_scaler.loss_scale, 1.0f);
  EXPECT_FALSE(off.zero.loss_scaler.check_overflow);
}

// The usual section, whose scale somebody has made a constant.
TEST(ConfigTest, TakesWhatAConstantLossScaleDoesNotAsk) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(R"(, "fp16": {"enabled": true,
      "loss_scale": 128, "initial_scale_power": 2, "loss_scale_window": 1000, "hysteresis": 2,
      "consecutive_hysteresis": false, "min_loss_scale": 8})"));
  EXPECT_FALSE(config.zero.loss_scaler.dynamic());
  EXPECT_EQ(config.zero.loss_scaler.loss_scale, 128.0f);
  constexpr char kConstant[] = ": fp16.loss_scale is not 0, so the scale never changes";
  EXPECT_THAT(config.without_effect,
              ::testing::UnorderedElementsAre(
                  absl::StrCat("fp16.initial_scale_power is 2", kConstant),
                  absl::StrCat("fp16.loss_scale_window is 1000", kConstant),
                  absl::StrCat("fp16.hysteresis is 2", kConstant),
                  absl::StrCat("fp16.consecutive_hysteresis is false", kConstant),
                  absl::StrCat("fp16.min_loss_scale is 8", kConstant)));
}

TEST(ConfigTest, TakesSectionsOfPrecisionThatAreOff) {
  for (const char* const off :
       {R"("fp16": {})", R"("bf16": {})", R"("fp16": {"loss_scale": 0})", R"("scheduler": {})",
        R"("fp16": {"enabled": false, "loss_scale": "x", "unknown": 1})",
        R"("bfloat16": {"enabled": false, "min_loss_scale": []})",
        R"("scheduler": {"type": null})"}) {
    SCOPED_TRACE(off);
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(absl::StrCat(", ", off)));
    EXPECT_EQ(config.zero.dtype, DType::kFloat32);
    EXPECT_TRUE(
        std::holds_alternative<optim::ConstantLR>(config.zero.optimizer.groups[0].schedule));
    EXPECT_THAT(config.without_effect, ::testing::IsEmpty());
  }
  const std::string copied = R"("loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2,
      "loss_scale_window": 1000, "min_loss_scale": "auto", "auto_cast": true)";
  ASSERT_OK_AND_ASSIGN(const TrainConfig on,
                       With(absl::StrCat(R"(, "bf16": {"enabled": true, )", copied, "}")));
  EXPECT_EQ(on.zero.dtype, DType::kBFloat16);
  EXPECT_EQ(on.zero.loss_scaler.loss_scale, 1.0f);
  EXPECT_EQ(on.without_effect.size(), 6u);
  EXPECT_EQ(on.without_effect[1], "bf16.hysteresis is 2: it is of fp16; bf16 has no loss scale");
  const std::string both = absl::StrCat(
      R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, "fp16": {"enabled": "auto", )",
      copied, R"(}, "bf16": {"enabled": "auto", )", copied, "}}");
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, ParseConfig(both, 4, ".", {}, {.dtype = dtype}));
    EXPECT_EQ(config.zero.dtype, dtype);
  }
}

TEST(ConfigTest, ReadsTheKeysOfZeroAndOfBrigade) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig first,
                       With(R"(, "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8,
      "overlap_comm": false, "contiguous_gradients": true, "reduce_scatter": true,
      "allgather_partitions": true}, "data_types": {"grad_accum_dtype": "bf16"},
      "gradient_clipping": 0, "gradient_accumulation_steps": 2, "communication_data_type": "fp16",
      "brigade": {"accumulation": "at_boundary", "algorithm": "ring",
                  "reduction": "rounded_per_hop"})"));
  EXPECT_EQ(first.zero.stage, 1);
  EXPECT_EQ(first.zero.bucket_elements, 500'000'000);
  EXPECT_FALSE(first.zero.overlap_comm);
  EXPECT_EQ(first.zero.accumulation, zero::Accumulation::kAtBoundary);
  EXPECT_EQ(first.zero.accumulator, DType::kBFloat16);
  EXPECT_EQ(first.zero.communication_dtype, DType::kFloat16);
  EXPECT_EQ(first.zero.algorithm, collectives::Algorithm::kRing);
  EXPECT_EQ(first.zero.reduction, collectives::Reduction::kRoundedPerHop);
  EXPECT_EQ(first.zero.max_grad_norm, std::numeric_limits<double>::infinity());
  EXPECT_EQ(first.zero.micro_batches, 2);
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig third,
      With(R"(, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0})"));
  EXPECT_EQ(first.communicator.topology, std::nullopt);
  EXPECT_EQ(third.zero.live_units, 1);
  EXPECT_EQ(third.zero.communication_dtype, std::nullopt);
  EXPECT_EQ(third.zero.algorithm, collectives::Algorithm::kAuto);
}

TEST(ConfigTest, TakesWhatChangesNoResultAndSaysSo) {
  using ::testing::ElementsAre;
  using ::testing::HasSubstr;
  ASSERT_OK_AND_ASSIGN(const TrainConfig second,
                       With(R"(, "zero_optimization": {"stage": 2, "allgather_bucket_size": 100,
                "contiguous_gradients": false, "round_robin_gradients": true,
                "stage3_param_persistence_threshold": 9, "stage3_prefetch_bucket_size": 0,
                "sub_group_size": 1e9, "max_reuse_distance": 5,
                "offload_optimizer": {"device": "none", "pin_memory": false, "nvme_path": "/d"}},
              "aio": {"block_size": 5000, "thread_count": 2}, "memory_breakdown": true)"));
  EXPECT_THAT(
      second.without_effect,
      ElementsAre(
          "aio.thread_count is 2: queue_depth says how much is in flight",
          "memory_breakdown is true: the report at the end has it, always",
          "zero_optimization.contiguous_gradients is false: gradients are written into buckets, "
          "always",
          "zero_optimization.max_reuse_distance is 5: brigade.live_units says how many units are "
          "gathered at a time",
          "zero_optimization.offload_optimizer.pin_memory is false: for a GPU host memory is "
          "page-locked, always",
          "zero_optimization.round_robin_gradients is true: a bucket's slices are what a rank owns",
          HasSubstr("aio is {\"block_size\":5000,\"thread_count\":2}, an object: no state is in a "
                    "file: offload_optimizer.device is not \"nvme\""),
          HasSubstr("zero_optimization.sub_group_size is 1000000000.0: no state is in a file"),
          HasSubstr("zero_optimization.offload_optimizer.nvme_path is \"/d\", a string: no state"),
          "zero_optimization.stage3_param_persistence_threshold is 9: zero_optimization.stage is 2",
          "zero_optimization.stage3_prefetch_bucket_size is 0: zero_optimization.stage is 2",
          "zero_optimization.allgather_bucket_size is 100: parameters are gathered in the buckets "
          "of their gradients, and reduce_bucket_size is 16777216"));
  // All as if it were not given.
  ASSERT_OK_AND_ASSIGN(const TrainConfig plain, With(R"(, "zero_optimization": {"stage": 2})"));
  EXPECT_EQ(plain.without_effect, std::vector<std::string>());
  EXPECT_EQ(second.zero.live_units, plain.zero.live_units);
  EXPECT_EQ(second.zero.persistence_threshold, plain.zero.persistence_threshold);
  EXPECT_EQ(second.zero.bucket_elements, plain.zero.bucket_elements);

  // What has a meaning keeps it.
  ASSERT_OK_AND_ASSIGN(const TrainConfig third,
                       With(R"(, "zero_optimization": {"stage": 3, "param_persistence_threshold": 9,
                "stage3_prefetch_bucket_size": 5e7, "sub_group_size": 1000,
                "offload_optimizer": {"device": "nvme", "nvme_path": "/d", "buffer_count": 8,
                                      "pipeline_write": false}},
              "aio": {"queue_depth": 8})"));
  EXPECT_EQ(third.zero.persistence_threshold, 9);
  EXPECT_EQ(third.zero.live_units, plain.zero.live_units);
  EXPECT_EQ(third.zero.offload.chunk_elements, 1000);
  EXPECT_EQ(third.zero.offload.chunk_buffers, 2);
  EXPECT_EQ(third.zero.offload.file.queue_depth, 8);
  EXPECT_THAT(third.without_effect,
              ElementsAre(HasSubstr("offload_optimizer.pipeline_write is false: the last"),
                          HasSubstr("stage3_prefetch_bucket_size is 50000000.0: units are")));
}

// DeepSpeed's names for how it saves memory and prints, and what one stage makes of all methods.
TEST(ConfigTest, TakesOtherWaysOfMemoryAndPrinting) {
  using ::testing::ElementsAre;
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       With(R"(, "dump_state": true, "activation_checkpointing": {
      "contiguous_memory_optimization": true, "number_checkpoints": 4, "profile": true,
      "synchronize_checkpoint_boundary": true, "partition_activations": true},
      "fp16": {"enabled": true, "auto_cast": true},
      "pipeline": {"stages": 1, "partition": "type:Block", "pipe_partitioned": true,
                   "grad_partitioned": false, "seed_layers": false},
      "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "none", "ratio": 0.5}})"));
  EXPECT_THAT(
      config.without_effect,
      ElementsAre(
          "activation_checkpointing.contiguous_memory_optimization is true: activations lie in one "
          "piece, always",
          "activation_checkpointing.number_checkpoints is 4: activations lie in one piece, always",
          "activation_checkpointing.profile is true: a trace has the times of operations (--trace)",
          "activation_checkpointing.synchronize_checkpoint_boundary is true: a step does not wait "
          "on the host",
          "dump_state is true: the first lines say what is trained, always",
          "fp16.auto_cast is true: inputs are token numbers",
          "activation_checkpointing.partition_activations is true: the model has one tensor rank",
          "pipeline.partition is \"type:Block\", a string: the model has one stage",
          "pipeline.pipe_partitioned is true: the model has one stage",
          "pipeline.grad_partitioned is false: the model has one stage",
          "zero_optimization.offload_optimizer.ratio is 0.5: offload_optimizer.device is "
          "\"none\""));
  EXPECT_EQ(config.zero.offload.host_share, 1);
  // Neutral values say nothing.
  ASSERT_OK_AND_ASSIGN(const TrainConfig neutral,
                       ParseConfig(R"({"train_batch_size": 8, "dump_state": false,
      "optimizer": {"type": "AdamW", "params": {"fp32_optimizer_states": true,
                                                "torch_adam": false}, "legacy_fusion": false},
      "activation_checkpointing": {"contiguous_memory_optimization": false, "profile": false,
                                   "number_checkpoints": null,
                                   "synchronize_checkpoint_boundary": false},
      "pipeline": {"seed_layers": true}})",
                                   4));
  EXPECT_THAT(neutral.without_effect, ElementsAre());
}

TEST(ConfigTest, TakesTypesByAllTheirNames) {
  const std::pair<const char*, DType> names[] = {
      {"fp32", DType::kFloat32},  {"float32", DType::kFloat32},  {"float", DType::kFloat32},
      {"fp16", DType::kFloat16},  {"float16", DType::kFloat16},  {"half", DType::kFloat16},
      {"bf16", DType::kBFloat16}, {"bfloat16", DType::kBFloat16}};
  for (const auto& [name, dtype] : names) {
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        With(absl::StrCat(R"(, "communication_data_type": ")", name,
                          R"(", "data_types": {"grad_accum_dtype": ")", name, "\"}")));
    EXPECT_EQ(config.zero.accumulator, dtype) << name;
    EXPECT_EQ(config.zero.communication_dtype, dtype) << name;
  }
  for (const char* key : {"seq_parallel_communication_data_type", "seq_parallel_comm_data_type"}) {
    EXPECT_OK(With(absl::StrCat(", \"", key, R"(": "float32")")));
  }
  ASSERT_OK_AND_ASSIGN(const TrainConfig older, With(R"(, "communication_data_type": "bfp16")"));
  EXPECT_EQ(older.zero.communication_dtype, DType::kBFloat16);
  EXPECT_OK(
      With(R"(, "tensor_parallel": {"autotp_size": 2}, "brigade": {"tensor_sums": "float"})"));
  // What fp16 and bf16 say already may be said again.
  EXPECT_OK(With(R"(, "bf16": {"enabled": true}, "data_types": {"param_dtype": "bfloat16"})"));
  EXPECT_OK(With(R"(, "data_types": {"param_dtype": "fp32"})"));
}

TEST(ConfigTest, TakesNullAsNothing) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(R"(, "bf16": null,
      "bfloat16": {"enabled": true}, "fp16": null, "scheduler": null, "zero_optimization": {
        "stage": null, "overlap_comm": null, "offload_optimizer": null, "offload_param": null,
        "reduce_bucket_size": null, "zenflow": null, "cpu_offload": null, "sub_group_size": null},
      "activation_checkpointing": null, "aio": null, "checkpoint": null, "pipeline": null,
      "tensor_parallel": null, "data_types": {"grad_accum_dtype": null, "param_dtype": null},
      "brigade": null, "gradient_clipping": null, "gradient_accumulation_steps": null,
      "train_micro_batch_size_per_gpu": null, "communication_data_type": null, "wandb": null,
      "dump_state": null, "vocabulary_size": null, "data_parallel_size": null)"));
  ASSERT_OK_AND_ASSIGN(const TrainConfig plain, With(R"(, "bf16": {"enabled": true})"));
  EXPECT_THAT(config.without_effect, ::testing::IsEmpty());
  EXPECT_EQ(config.zero.dtype, DType::kBFloat16);
  EXPECT_EQ(config.zero.stage, plain.zero.stage);
  EXPECT_EQ(config.zero.accumulator, plain.zero.accumulator);
  EXPECT_EQ(config.zero.bucket_elements, plain.zero.bucket_elements);
  EXPECT_EQ(config.zero.offload, plain.zero.offload);
  EXPECT_EQ(config.recompute, plain.recompute);
  EXPECT_EQ(config.batch, plain.batch);
  EXPECT_OK(With(R"(, "wandb": {"enabled": null}, "activation_checkpointing": null,
                      "pipeline": {"activation_checkpoint_interval": 0})"));
}

TEST(ConfigTest, TakesWhatIsOffWhateverIsInside) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       With(R"(, "data_efficiency": {"enabled": false, "seed": 1234,
      "data_routing": {"enabled": true, "random_ltd": {"enabled": false}},
      "data_sampling": {"enabled": false, "curriculum_learning": {"enabled": false}}})"));
  ASSERT_EQ(config.without_effect.size(), 1u);
  EXPECT_THAT(config.without_effect[0],
              ::testing::AllOf(
                  ::testing::StartsWith("data_efficiency is {\"data_routing\""),
                  ::testing::EndsWith(": \"enabled\": false switches off what is inside too")));
  ASSERT_OK_AND_ASSIGN(const TrainConfig off, With(R"(, "data_efficiency": {"enabled": false,
      "data_sampling": {"enabled": false}})"));
  EXPECT_THAT(off.without_effect, ::testing::IsEmpty());
  EXPECT_EQ(With(R"(, "data_efficiency": {"data_routing": {"enabled": true}})").status().code(),
            absl::StatusCode::kUnimplemented);
  // Of types too.
  for (const char* sections :
       {R"("fp16": {"enabled": false, "fp16_master_weights_and_grads": true})",
        R"("bf16": {"enabled": false, "bf16_master_weights_and_grads": true,
                    "bf16_optimizer_states": true})"}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig types, With(absl::StrCat(", ", sections)));
    EXPECT_THAT(types.without_effect, ::testing::IsEmpty());
    EXPECT_EQ(types.zero.dtype, DType::kFloat32);
  }
}

TEST(ConfigTest, KeepsParametersOnTheDeviceBelowStage3) {
  using ::testing::ElementsAre;
  const auto offload = [](const char* stage, const char* device, const char* more = "") {
    return With(absl::StrCat(R"(, "zero_optimization": {"stage": )", stage,
                             R"(, "offload_optimizer": {"device": "cpu", "ratio": 1},
                                  "offload_param": {"device": ")",
                             device, "\"", more, "}}"));
  };
  ASSERT_OK_AND_ASSIGN(const TrainConfig second, offload("2", "cpu"));
  EXPECT_EQ(second.zero.offload.parameters, device::Tier::kDevice);
  EXPECT_EQ(second.zero.offload.optimizer_state, device::Tier::kHost);
  EXPECT_THAT(second.without_effect,
              ElementsAre("zero_optimization.offload_param.device is \"cpu\", a string: stage 2 "
                          "keeps all parameters on the device; stage 3 does not"));
  ASSERT_OK_AND_ASSIGN(const TrainConfig first, offload("1", "nvme", R"(, "nvme_path": "/d")"));
  EXPECT_EQ(first.zero.offload.parameters, device::Tier::kDevice);
  EXPECT_EQ(first.without_effect.size(), 2u);
  EXPECT_THAT(offload("1", "none")->without_effect, ElementsAre());
  EXPECT_EQ(offload("3", "cpu")->zero.offload.parameters, device::Tier::kHost);
}

TEST(ConfigTest, TakesAPathThatNoDeviceAsksForOnlyForAStash) {
  using ::testing::ElementsAre;
  ASSERT_OK_AND_ASSIGN(const TrainConfig path, With(R"(, "zero_optimization": {"stage": 1,
      "offload_optimizer": {"device": "cpu", "nvme_path": "/d"}},
      "brigade": {"recompute": "block", "stash": "file", "file_directory": "/e"})"));
  EXPECT_EQ(path.zero.offload.file.directory, "/e");
  EXPECT_THAT(path.without_effect,
              ElementsAre("zero_optimization.offload_optimizer.nvme_path is \"/d\", a string: no "
                          "state is in a file: offload_optimizer.device is not \"nvme\""));
  ASSERT_OK_AND_ASSIGN(const TrainConfig stash, With(R"(, "zero_optimization": {"stage": 1,
      "offload_optimizer": {"device": "cpu", "nvme_path": "/d"}},
      "brigade": {"recompute": "block", "stash": "file"})"));
  EXPECT_EQ(stash.zero.offload.file.directory, "/d");
  EXPECT_THAT(stash.without_effect, ElementsAre());
}

TEST(ConfigTest, TakesTagValidationInUpperAndLowerCase) {
  for (const char* mode : {"WARN", "ignore", "Fail"}) {
    EXPECT_OK(With(absl::StrCat(R"(, "checkpoint": {"tag_validation": ")", mode, "\"}")));
  }
}

TEST(ConfigTest, ReadsStepsPerPrint) {
  EXPECT_EQ(With("")->steps_per_print, 0);
  EXPECT_EQ(With(R"(, "steps_per_print": null)")->steps_per_print, 0);
  EXPECT_EQ(With(R"(, "steps_per_print": "auto")")->steps_per_print, 0);
  EXPECT_EQ(With(R"(, "steps_per_print": 2000)")->steps_per_print, 2000);
}

TEST(ConfigTest, ReadsMonitorsAsDeepSpeedDoes) {
  const MonitorConfig none = With("")->monitor;
  EXPECT_EQ(none.tensorboard, "");
  EXPECT_EQ(none.csv, "");
  EXPECT_FALSE(none.wall_clock_breakdown);
  // A section that does not say so is off.
  EXPECT_EQ(With(R"(, "tensorboard": {"output_path": "logs"})")->monitor.tensorboard, "");
  const MonitorConfig both =
      With(R"(, "wall_clock_breakdown": true, "tensorboard": {"enabled": true},
              "csv_monitor": {"enabled": true, "output_path": "out/logs/", "job_name": "bert"})")
          ->monitor;
  EXPECT_EQ(both.tensorboard, "DeepSpeedJobName");
  EXPECT_EQ(both.csv, "out/logs/bert");
  EXPECT_TRUE(both.wall_clock_breakdown);
  EXPECT_FALSE(With(R"(, "wall_clock_breakdown": "auto")")->monitor.wall_clock_breakdown);
  const std::string off = R"(, "csv_monitor": {"enabled": false, "job_name": 7})";
  EXPECT_EQ(With(off)->monitor.csv, "");
}

TEST(ConfigTest, FlagsOfAStepComeFirst) {
  const std::string file = R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
                               "optimizer": {"type": "SGD", "params": {"lr": 0.25}}})";
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       ParseConfig(file, 4, ".", {}, {.batch = 24, .lr = 0.5}));
  EXPECT_EQ(config.batch, (zero::BatchSizes{24, 2, 3}));
  EXPECT_EQ(config.zero.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(config.zero.optimizer.groups[0].lr, 0.5);
  // Without an optimizer, and with "auto" for all that flags say.
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig rest,
      ParseConfig(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                      "gradient_accumulation_steps": "auto",
                      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto",
                                    "total_num_steps": "auto", "warmup_num_steps": 2}}})",
                  4, ".", {}, {.batch = 8, .lr = 0.5, .steps = 20}));
  EXPECT_EQ(rest.batch, (zero::BatchSizes{8, 2, 1}));
  const optim::ParameterGroup& group = rest.zero.optimizer.groups[0];
  EXPECT_EQ(rest.zero.optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(group.lr, 0.5);
  const auto& schedule = std::get<optim::WarmupDecayLR>(group.schedule);
  EXPECT_EQ(schedule.warmup_max_lr, 0.5);
  EXPECT_EQ(schedule.total_num_steps, 20);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const char* sections : {R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"})",
                                 dtype == DType::kBFloat16 ? R"("bfloat16": {"enabled": true})"
                                                           : R"("fp16": {"enabled": "auto"})"}) {
      ASSERT_OK_AND_ASSIGN(const TrainConfig typed,
                           ParseConfig(absl::StrCat("{", sections, "}"), 4, ".", {},
                                       {.batch = 4, .lr = 0.5, .dtype = dtype}));
      EXPECT_EQ(typed.zero.dtype, dtype) << sections;
    }
  }
  // What changes memory or speed alone is ours to choose.
  ASSERT_OK_AND_ASSIGN(const TrainConfig ours,
                       With(R"(, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
                "overlap_comm": "auto", "stage3_param_persistence_threshold": "auto"})"));
  EXPECT_EQ(ours.zero.bucket_elements, zero::ZeroOptions().bucket_elements);
  EXPECT_EQ(ours.without_effect, std::vector<std::string>());
}

TEST(ConfigTest, ReadsEveryPolicyOfRecomputation) {
  using Kind = recompute::Policy::Kind;
  const struct {
    const char* keys;
    recompute::Policy policy;
  } kCases[] = {
      {"", {.kind = Kind::kNone}},
      {R"(, "brigade": {"recompute": "none"})", {.kind = Kind::kNone}},
      {R"(, "brigade": {"recompute": "block"})", {.kind = Kind::kBlock}},
      {R"(, "brigade": {"recompute": "selective"})", {.kind = Kind::kSelective}},
      {R"(, "brigade": {"recompute": "segments:3"})",
       {.kind = Kind::kSegments, .stages_per_segment = 3}},
      {R"(, "brigade": {"recompute": "budget:12345"})",
       {.kind = Kind::kBudget, .budget_bytes = 12345}},
      {R"(, "brigade": {"recompute": "budget:3MiB"})",
       {.kind = Kind::kBudget, .budget_bytes = 3 << 20}},
      // DeepSpeed's section asks for it by being there; brigade.recompute says it better.
      {R"(, "activation_checkpointing": {})", {.kind = Kind::kBlock}},
      {R"(, "activation_checkpointing": {}, "brigade": {"recompute": "none"})",
       {.kind = Kind::kNone}},
      {R"(, "activation_checkpointing": {}, "brigade": {"recompute": "selective"})",
       {.kind = Kind::kSelective}},
  };
  for (const auto& [keys, policy] : kCases) {
    SCOPED_TRACE(keys);
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(keys));
    EXPECT_EQ(config.recompute, policy);
  }
}

TEST(ConfigTest, TakesWhatChangesNothingOfActivationCheckpointing) {
  for (const char* key : {R"("partition_activations": false)", R"("cpu_checkpointing": false)",
                          R"("contiguous_memory_optimization": false)",
                          R"("number_checkpoints": null)", R"("number_checkpoints": false)",
                          R"("synchronize_checkpoint_boundary": false)", R"("profile": false)"}) {
    SCOPED_TRACE(key);
    ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                         With(absl::StrCat(R"(, "activation_checkpointing": {)", key, "}")));
    EXPECT_EQ(config.recompute, recompute::Policy{.kind = recompute::Policy::Kind::kBlock});
  }
}

TEST(ConfigTest, ReadsByWhatTimesAreCounted) {
  const std::pair<const char*, RecomputeTimes> sections[] = {
      {R"("recompute": "block")", RecomputeTimes::kOperations},
      {R"("recompute": "block", "recompute_times": "operations")", RecomputeTimes::kOperations},
      {R"("recompute": "block", "recompute_times": "measured")", RecomputeTimes::kMeasured},
  };
  for (const auto& [section, times] : sections) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                         With(absl::StrCat(R"(, "brigade": {)", section, "}")));
    EXPECT_EQ(config.recompute_times, times) << section;
  }
  EXPECT_EQ(ParseRecomputeTimes("operations").value(), RecomputeTimes::kOperations);
  EXPECT_EQ(ParseRecomputeTimes("measured").value(), RecomputeTimes::kMeasured);
  EXPECT_THAT(ParseRecomputeTimes("flops").status(),
              brigade::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         "\"flops\" is neither operations nor measured"));
}

TEST(ConfigTest, ReadsHowManyLayersMakeTheirActivationsAgain) {
  using Kind = recompute::Policy::Kind;
  const std::pair<const char*, recompute::Policy> sections[] = {
      {R"(, "pipeline": {"activation_checkpoint_interval": 0})", {}},
      {R"(, "pipeline": {"activation_checkpoint_interval": 1})",
       {.kind = Kind::kSegments, .stages_per_segment = 1}},
      {R"(, "pipeline": {"activation_checkpoint_interval": 3},
           "activation_checkpointing": {"cpu_checkpointing": true})",
       {.kind = Kind::kSegments, .stages_per_segment = 3, .stash = recompute::StashTier::kHost}}};
  for (const auto& [section, policy] : sections) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(section));
    EXPECT_EQ(config.recompute, policy) << section;
  }
}

TEST(ConfigTest, ReadsDropout) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig without, With(""));
  EXPECT_EQ(without.dropout, 0);
  ASSERT_OK_AND_ASSIGN(const TrainConfig none, With(R"(, "brigade": {"dropout": 0})"));
  EXPECT_EQ(none.dropout, 0);
  ASSERT_OK_AND_ASSIGN(const TrainConfig with, With(R"(, "brigade": {"dropout": 0.1})"));
  EXPECT_EQ(with.dropout, 0.1);
}

TEST(ConfigTest, ReadsWhatIsMadeAgainAndWhatIsStashed) {
  using Kind = recompute::Policy::Kind;
  constexpr auto kHost = recompute::StashTier::kHost;
  constexpr auto kFile = recompute::StashTier::kFile;
  const std::pair<const char*, recompute::Policy> sections[] = {
      {"", {}},
      {R"(, "activation_checkpointing": {})", {.kind = Kind::kBlock}},
      {R"(, "activation_checkpointing": {"cpu_checkpointing": false})", {.kind = Kind::kBlock}},
      {R"(, "activation_checkpointing": {"cpu_checkpointing": true})",
       {.kind = Kind::kBlock, .stash = kHost}},
      {R"(, "activation_checkpointing": {"cpu_checkpointing": true},
            "brigade": {"recompute": "segments:3"})",
       {.kind = Kind::kSegments, .stages_per_segment = 3, .stash = kHost}},
      {R"(, "activation_checkpointing": {}, "brigade": {"stash": "host"})",
       {.kind = Kind::kBlock, .stash = kHost}},
      {R"(, "brigade": {"recompute": "block", "stash": "host"})",
       {.kind = Kind::kBlock, .stash = kHost}},
      {R"(, "brigade": {"recompute": "selective", "stash": "none"})", {.kind = Kind::kSelective}},
      {R"(, "aio": {"queue_depth": 8}, "brigade": {"recompute": "block", "stash": "file",
            "file_directory": "/d", "file_checksums": true})",
       {.kind = Kind::kBlock, .stash = kFile}},
      {R"(, "activation_checkpointing": {"cpu_checkpointing": true},
            "brigade": {"stash": "file", "file_directory": "/d"})",
       {.kind = Kind::kBlock, .stash = kFile}},
  };
  for (const auto& [section, policy] : sections) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig config, With(section));
    EXPECT_EQ(config.recompute, policy) << section;
    EXPECT_EQ(config.zero.offload.file.directory, policy.stash == kFile ? "/d" : "") << section;
  }
}

}  // namespace
}  // namespace brigade::train
