#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/config/small_config.h"
#include "brigade/train/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

absl::Status ErrorOfOptimizer(const std::string& optimizer, const std::string& more = "") {
  return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": )", optimizer, more, "}"),
                     4)
      .status();
}

TEST(ConfigErrorsTest, NameTheNearestKeyWhereverItIs) {
  EXPECT_THAT(Error(R"("zero_optimization": {"stagee": 2})"),
              StatusIs(kInvalid,
                       "zero_optimization.stagee is 2; there is no such key, the nearest "
                       "is zero_optimization.stage"));
  EXPECT_THAT(Error(R"("stage": 2)"), StatusIs(kInvalid,
                                               "stage is 2; there is no such key, the nearest is "
                                               "zero_optimization.stage"));
  EXPECT_THAT(Error(R"("train_batchsize": 2)"),
              StatusIs(kInvalid,
                       "train_batchsize is 2; there is no such key, the nearest is "
                       "train_batch_size"));
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "Adam", "params": {"momentum": 0.9}})"),
              StatusIs(kInvalid,
                       "optimizer.params.momentum is 0.9; there is no such key, the "
                       "nearest is optimizer.params.momentum of type SGD"));
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "Adam", "lr": 0.1})"),
              StatusIs(kInvalid,
                       "optimizer.lr is 0.1; there is no such key, the nearest is "
                       "optimizer.params.lr"));
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "AdamX"})"),
              StatusIs(kInvalid,
                       "optimizer.type is \"AdamX\", a string; there is no such type, the "
                       "nearest is Adam; it must be one of Adam, AdamW, SGD, Lion, Muon, "
                       "Adafactor, AdamW8bit, Adam8bit, OneBitAdam, "
                       "Lamb, OneBitLamb, ZeroOneAdam"));
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "Adm"})"), StatusIs(kInvalid, HasSubstr("is Adam")));
}

TEST(ConfigErrorsTest, NameNoKeyThatIsNotNear) {
  EXPECT_THAT(
      ErrorOfOptimizer(R"({"type": "FusedAdam"})"),
      StatusIs(kInvalid, StartsWith("optimizer.type is \"FusedAdam\", a string; there is no such "
                                    "type: it must be one of Adam")));
  for (const auto& [section, key] :
       {std::pair("fp16", "type"), std::pair("amp_of_nvidia", ""), std::pair("fp16_opt_level", ""),
        std::pair("pipe-parallel-size", ""), std::pair("_comment", "")}) {
    const bool is_inside = key[0] != '\0';
    const std::string json =
        is_inside ? absl::StrCat("\"", section, "\": {\"enabled\": true, \"", key, "\": 1}")
                  : absl::StrCat("\"", section, "\": 1");
    EXPECT_THAT(Error(json), StatusIs(kInvalid, absl::StrCat(section, is_inside ? "." : "", key,
                                                             " is 1; there is no such key")));
  }
}

TEST(ConfigErrorsTest, NameValuesThatAKeyCannotHave) {
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "Adam", "params": {"lr": "0.1"}})"),
              StatusIs(kInvalid,
                       "optimizer.params.lr is \"0.1\", a string; it must be a number, 0 "
                       "or more, and finite as a float"));
  EXPECT_THAT(
      Error(R"("zero_optimization": {"stage": 4})"),
      StatusIs(kInvalid, "zero_optimization.stage is 4; it must be a whole number, 0 to 3"));
  EXPECT_THAT(Error(R"("zero_optimization": true)"),
              StatusIs(kInvalid, "zero_optimization is true; it must be an object"));
  EXPECT_THAT(Error(R"("gradient_clipping": -1)"),
              StatusIs(kInvalid,
                       "gradient_clipping is -1; it must be a number, 0 or more, and "
                       "finite as a float"));
  EXPECT_THAT(Error(R"("fp16": {"loss_scale": "x"})"),
              StatusIs(kInvalid, StartsWith("fp16.loss_scale is \"x\", a string; it must be")));
  EXPECT_THAT(Error(R"("scheduler": {"params": {"warmup_num_steps": 3}})"),
              StatusIs(kInvalid, StartsWith("scheduler.type is not given; it must be one of ")));
  EXPECT_THAT(
      Error(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -1}})"),
      StatusIs(kInvalid,
               "scheduler.params.warmup_num_steps is -1; it must be a whole number, 0 to 2^24"));
  EXPECT_THAT(Error(R"("checkpoint": {"tag_validation": "never"})"),
              StatusIs(kInvalid,
                       "checkpoint.tag_validation is \"never\", a string; it must be \"Warn\" or "
                       "\"Ignore\" or \"Fail\""));
  EXPECT_THAT(Error(R"("scheduler": {"type": "WarmupDecayLR"})"),
              StatusIs(kInvalid,
                       "scheduler.params.total_num_steps is not given; it has no "
                       "default"));
  EXPECT_THAT(ParseConfig(R"({"train_batch_size": 8})", 4),
              StatusIs(kInvalid,
                       "optimizer is not given; one is needed, like {\"type\": "
                       "\"AdamW\", \"params\": {\"lr\": 0.001}}; or --lr, for AdamW with that "
                       "rate"));
}

TEST(ConfigErrorsTest, NameWhatIsNotSoHere) {
  EXPECT_THAT(Error(R"("zero_optimization": {"ignore_unused_parameters": false})"),
              StatusIs(kInvalid,
                       "zero_optimization.ignore_unused_parameters is false; it must be true: a "
                       "gradient that is not written counts as zero"));
  EXPECT_THAT(Error(R"("zero_optimization": {"cpu_offload": true})"),
              StatusIs(kInvalid,
                       "zero_optimization.cpu_offload is true; it must be false: "
                       "offload_optimizer.device says it, \"cpu\""));
  EXPECT_THAT(Error(R"("prescale_gradients": true)"),
              StatusIs(kInvalid,
                       "prescale_gradients is true; it must be false: gradients are divided after "
                       "the sum"));
  EXPECT_THAT(Error(R"("scheduler": {"type": "OneCycle",
                       "params": {"cycle_min_lr": 0, "cycle_max_lr": 1}})"),
              StatusIs(kInvalid,
                       "scheduler.params.cycle_momentum is not given; DeepSpeed's default "
                       "is true, but momentum is a constant here: write false"));
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "Adam", "params": {"fp32_optimizer_states": false}})"),
              StatusIs(kInvalid,
                       "optimizer.params.fp32_optimizer_states is false; it must be true: the "
                       "moments are fp32"));
  EXPECT_THAT(
      Error(R"("bf16": {"enabled": true}, "data_types": {"param_dtype": "float16"})"),
      StatusIs(kInvalid, "data_types.param_dtype is \"float16\", but by fp16 and bf16 it is bf16"));
  EXPECT_THAT(Error(R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})"),
              StatusIs(kInvalid,
                       "fp16.fp16_master_weights_and_grads is true, but master weights are fp32"));
  for (const std::string section : {"bf16", "bfloat16"}) {
    EXPECT_THAT(
        Error(absl::StrCat("\"", section, R"(": {"enabled": true, "bf16_optimizer_states": true,
                                                 "bf16_master_weights_and_grads": true})")),
        StatusIs(kInvalid,
                 absl::StrCat("2 keys are refused:\n  ", section,
                              ".bf16_master_weights_and_grads is true, but master weights are "
                              "fp32\n  ",
                              section,
                              ".bf16_optimizer_states is true, but optimizer states are fp32")));
  }
  EXPECT_THAT(Error(R"("communication_data_type": "int8")"),
              StatusIs(kInvalid,
                       "communication_data_type is \"int8\", a string; it must be \"fp32\" or "
                       "\"fp16\" or \"bf16\""));
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "AdamW", "params": {"adam_w_mode": false}})"),
              StatusIs(kInvalid,
                       "optimizer.params.adam_w_mode is false; it must be true: that is what "
                       "AdamW means; with type Adam it may be false"));
}

TEST(ConfigErrorsTest, NameWhatIsNotSoOfActivations) {
  const auto error = [](const char* key, const char* value) {
    return Error(absl::StrCat(R"("activation_checkpointing": {")", key, "\": ", value, "}"));
  };
  for (const auto& [key, wanted] : {std::pair("contiguous_memory_optimization", "true or false"),
                                    std::pair("number_checkpoints", "a number"),
                                    std::pair("synchronize_checkpoint_boundary", "true or false"),
                                    std::pair("profile", "true or false")}) {
    EXPECT_THAT(error(key, "\"yes\""),
                StatusIs(kInvalid, absl::StrCat("activation_checkpointing.", key,
                                                " is \"yes\", a string; it must be ", wanted)));
  }
  EXPECT_THAT(error("cpu_checkpointing", "\"yes\""),
              StatusIs(kInvalid, StartsWith("activation_checkpointing.cpu_checkpointing is "
                                            "\"yes\", a string; it must be ")));
  EXPECT_THAT(error("partition_activation", "false"),
              StatusIs(kInvalid,
                       "activation_checkpointing.partition_activation is false; there is no such "
                       "key, the nearest is activation_checkpointing.partition_activations"));
  EXPECT_THAT(Error(R"("activation_checkpointing": true)"),
              StatusIs(kInvalid, "activation_checkpointing is true; it must be an object"));
  EXPECT_THAT(Error(R"("brigade": {"recompute": 3})"),
              StatusIs(kInvalid,
                       "brigade.recompute is 3; it must be none, block, selective, segments:K or "
                       "budget:BYTES"));
  for (const char* policy :
       {"", "all", "None", "segments", "segments:0", "segments:-1", "segments:2.5",
        "budget:", "budget:0", "budget:1MB", "budget:9223372036854775807KiB", "block "}) {
    EXPECT_THAT(Error(absl::StrCat(R"("brigade": {"recompute": ")", policy, "\"}")),
                StatusIs(kInvalid, absl::StrCat("brigade.recompute is \"", policy,
                                                "\", a string; it must be none, block, selective, "
                                                "segments:K or budget:BYTES")));
  }
}

TEST(ConfigErrorsTest, NameTimesOfRecomputationThatHaveNoEffect) {
  EXPECT_THAT(
      Error(R"("brigade": {"recompute_times": "measured"})"),
      StatusIs(kInvalid,
               "brigade.recompute_times is \"measured\", but no activations are made again"));
  EXPECT_THAT(Error(R"("brigade": {"recompute": "block", "recompute_times": "flops"})"),
              StatusIs(kInvalid, StartsWith("brigade.recompute_times is \"flops\"")));
}

TEST(ConfigErrorsTest, NameADropoutThatCannotBe) {
  for (const char* share : {"1", "-0.1", "1e300"}) {
    EXPECT_THAT(Error(absl::StrCat(R"("brigade": {"dropout": )", share, "}")),
                StatusIs(kInvalid, HasSubstr("; it must be a number, 0 or more, and less than 1")));
  }
  EXPECT_THAT(Error(R"("brigade": {"dropout": 1})"),
              StatusIs(kInvalid, StartsWith("brigade.dropout is 1;")));
  EXPECT_THAT(
      Error(R"("brigade": {"dropout": "0.1"})"),
      StatusIs(kInvalid, StartsWith("brigade.dropout is \"0.1\", a string; it must be a number")));
  EXPECT_THAT(
      Error(R"("dropout": 0.1)"),
      StatusIs(kInvalid, "dropout is 0.1; there is no such key, the nearest is brigade.dropout"));
}

// A stash is for inputs that are kept, and the two keys for it must not contradict each other.
TEST(ConfigErrorsTest, NameAStashThatHasNoEffect) {
  constexpr char kUnstashable[] =
      "a stash is for the inputs of recomputation by block or segments:K, not by ";
  EXPECT_THAT(
      Error(R"("brigade": {"stash": "host"})"),
      StatusIs(kInvalid, absl::StrCat("brigade.stash is \"host\", but ", kUnstashable, "none")));
  EXPECT_THAT(Error(R"("brigade": {"stash": "host", "recompute": "selective"})"),
              StatusIs(kInvalid,
                       absl::StrCat("brigade.stash is \"host\", but ", kUnstashable, "selective")));
  EXPECT_THAT(Error(R"("activation_checkpointing": {"cpu_checkpointing": true},
                       "brigade": {"recompute": "budget:1000"})"),
              StatusIs(kInvalid, absl::StrCat("activation_checkpointing.cpu_checkpointing is true, "
                                              "but ",
                                              kUnstashable, "budget:1000")));
  EXPECT_THAT(Error(R"("activation_checkpointing": {"cpu_checkpointing": true},
                       "brigade": {"stash": "none"})"),
              StatusIs(kInvalid,
                       "activation_checkpointing.cpu_checkpointing is true, but brigade.stash is "
                       "\"none\""));
  EXPECT_THAT(Error(R"("brigade": {"stash": "disk", "recompute": "block"})"),
              StatusIs(kInvalid, HasSubstr("brigade.stash is \"disk\"")));
  EXPECT_THAT(
      Error(R"("brigade": {"stash": "file", "recompute": "block"})"),
      StatusIs(kInvalid, "brigade.stash is \"file\", but brigade.file_directory is missing"));
  EXPECT_THAT(Error(R"("aio": {"block_size": 5000}, "brigade": {"stash": "file",
                       "recompute": "block", "file_directory": "/d"})"),
              StatusIs(kInvalid, HasSubstr("no multiple of 4096")));
  EXPECT_THAT(Error(R"("activation_checkpointing": {"cpu_checkpointing": 1})"),
              StatusIs(kInvalid, HasSubstr("activation_checkpointing.cpu_checkpointing is 1")));
}

TEST(ConfigErrorsTest, NameWhatIsNotSupportedYet) {
  for (const char* key : {"compile", "progressive_layer_drop", "hybrid_engine"}) {
    EXPECT_THAT(
        Error(absl::StrCat("\"", key, R"(": {"enabled": true})")),
        StatusIs(kUnimplemented, absl::StrCat(key,
                                              " is {\"enabled\":true}, an object; DeepSpeed "
                                              "knows it, but it is not supported yet")));
  }
  EXPECT_THAT(Error(R"("wandb": {"enabled": true})"),
              StatusIs(kUnimplemented,
                       "wandb is {\"enabled\":true}, an object; DeepSpeed knows it, but it is "
                       "not supported yet: `wandb sync` uploads what tensorboard writes"));
  EXPECT_THAT(
      Error(R"("tensorboard": {"enabled": true, "job_name": "", "output_pat": "x"},
                       "csv_monitor": {"enabled": 1})"),
      StatusIs(kInvalid,
               AllOf(HasSubstr("csv_monitor.enabled is 1; it must be true or "
                               "false"),
                     HasSubstr("tensorboard.job_name is \"\", a string; it must be a text "
                               "that is not empty"),
                     HasSubstr("tensorboard.output_pat is \"x\", a string; there is no such "
                               "key, the nearest is "
                               "tensorboard.output_path"))));
  EXPECT_THAT(Error(R"("amp": {"enabled": "auto"})"),
              StatusIs(kUnimplemented,
                       "amp is {\"enabled\":\"auto\"}, an object; DeepSpeed knows it, but it is "
                       "not supported yet: \"enabled\" is \"auto\", which nothing fills in here: "
                       "write false; fp16 and bf16 say it"));
  for (const char* inside :
       {R"("data_routing": {"enabled": false, "random_ltd": {"enabled": true}})",
        R"("data_sampling": {"curriculum_learning": {"enabled": true}})"}) {
    EXPECT_THAT(
        Error(absl::StrCat(R"("data_efficiency": {"enabled": false, )", inside, "}")),
        StatusIs(kUnimplemented, AllOf(StartsWith("data_efficiency is {"),
                                       EndsWith("supported yet: texts are drawn by seed and "
                                                "step"))));
  }
  EXPECT_THAT(Error(R"("zero_optimization": {"offload_optimizer": {"pipeline": true}})"),
              StatusIs(kUnimplemented,
                       "zero_optimization.offload_optimizer.pipeline is true; DeepSpeed "
                       "knows it, but it is not supported yet"));
  EXPECT_THAT(Error(R"("data_parallel_size": 2)"),
              StatusIs(kUnimplemented,
                       "data_parallel_size is 2; DeepSpeed knows it, but it is not supported yet: "
                       "the ranks that share neither model nor texts share the batch"));
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "MuAdam", "params": {"lr": 0.3}})"),
              StatusIs(kUnimplemented,
                       "optimizer.type is \"MuAdam\", a string; DeepSpeed knows it, "
                       "but it is not supported yet; it must be one of Adam, AdamW, SGD, Lion, "
                       "Muon, Adafactor, AdamW8bit, Adam8bit, OneBitAdam, Lamb, OneBitLamb, "
                       "ZeroOneAdam"));
}

TEST(ConfigErrorsTest, NameWhatIsWrongWithOffload) {
  const auto error = [](const char* stage, const char* sections) {
    return Error(absl::StrCat(R"("zero_optimization": {"stage": )", stage, ", ", sections, "}"));
  };
  EXPECT_THAT(
      error("3", R"("offload_optimizer": {"device": "gpu"})"),
      StatusIs(kInvalid, HasSubstr("offload_optimizer.device is \"gpu\", a string; it must be "
                                   "\"none\" or \"cpu\" or \"nvme\"")));
  EXPECT_THAT(error("3", R"("offload_param": {"device": "cpu"})"),
              StatusIs(kInvalid,
                       "zero_optimization.offload_param.device is \"cpu\", but "
                       "offload_optimizer.device is \"none\": weights go where the optimizer's "
                       "state is; write \"offload_optimizer\": {\"device\": \"cpu\"} as well"));
  EXPECT_THAT(error("0", R"("offload_optimizer": {"device": "cpu"})"),
              StatusIs(kInvalid, HasSubstr("in stage 0 every rank updates everything")));
  EXPECT_THAT(error("3", R"("offload_optimizer": {"device": "cpu", "ratio": 0.5},
                            "offload_param": {"device": "cpu"})"),
              StatusIs(kInvalid,
                       "zero_optimization.offload_optimizer.ratio is 0.5, but offload_param.device "
                       "is not \"none\": the update of weights that are there is the host's"));
  EXPECT_THAT(error("1", R"("offload_optimizer": {"super_offload": true})"),
              StatusIs(kInvalid, HasSubstr("is not exact")));
  EXPECT_THAT(Error(R"("brigade": {"delay_update": true})"),
              StatusIs(kInvalid,
                       "brigade.delay_update is true, but it needs the whole optimizer state on "
                       "the host or in a file: offload_optimizer.device \"cpu\" or \"nvme\", with "
                       "a ratio of 1"));
  EXPECT_THAT(Error(R"("brigade": {"delay_warm_up": 3})"),
              StatusIs(kInvalid, HasSubstr("brigade.delay_update is not true")));
  EXPECT_THAT(error("1", R"("zenflow": {"topk_ratio": 0.1})"),
              StatusIs(kInvalid, HasSubstr("it changes results")));
}

TEST(ConfigErrorsTest, NameWhatIsWrongWithFiles) {
  const auto error = [](const char* stage, const char* sections, const char* others = "") {
    return Error(
        absl::StrCat(R"("zero_optimization": {"stage": )", stage, ", ", sections, "}", others));
  };
  constexpr char kFile[] = R"("offload_optimizer": {"device": "nvme", "nvme_path": "/d"})";
  EXPECT_THAT(error("1", R"("offload_optimizer": {"device": "nvme"})"),
              StatusIs(kInvalid, HasSubstr("nvme_path is missing")));
  EXPECT_THAT(error("1", absl::StrCat(kFile, R"(, "sub_group_size": 0)").c_str()),
              StatusIs(kInvalid,
                       "zero_optimization.sub_group_size is 0, but a chunk has at least one "
                       "element"));
  EXPECT_THAT(error("1", kFile, R"(, "brigade": {"file_directory": "/e"})"),
              StatusIs(kInvalid,
                       "brigade.file_directory is \"/e\", but "
                       "offload_optimizer.nvme_path is another directory"));
  EXPECT_THAT(error("1", kFile, R"(, "aio": {"block_size": 5000})"),
              StatusIs(kInvalid, HasSubstr("no multiple of 4096")));
  EXPECT_THAT(error("1", kFile, R"(, "brigade": {"file_engine": "libaio"})"),
              StatusIs(kInvalid, HasSubstr("\"io_uring\"")));
  EXPECT_THAT(error("3", R"("offload_optimizer": {"device": "nvme", "nvme_path": "/d"},
                            "offload_param": {"device": "nvme", "nvme_path": "/e"})"),
              StatusIs(kInvalid, HasSubstr("a rank has one file")));
  EXPECT_THAT(error("3", R"("offload_optimizer": {"device": "cpu"},
                            "offload_param": {"device": "nvme"})"),
              StatusIs(kInvalid,
                       "zero_optimization.offload_param.device is \"nvme\", but "
                       "offload_optimizer.device is \"cpu\": a step that cannot be written must "
                       "leave both as they were"));
  EXPECT_THAT(error("3", R"("offload_optimizer": {"device": "nvme", "nvme_path": "/d",
                                                  "ratio": 0.5})"),
              StatusIs(kInvalid, HasSubstr("offload_optimizer.ratio is 0.5, but "
                                           "offload_optimizer.device is \"nvme\": a step")));
  EXPECT_THAT(error("3", R"("offload_optimizer": {"device": "nvme", "nvme_path": "/d"},
                            "offload_param": {"device": "nvme"})",
                    R"(, "brigade": {"delay_update": true})"),
              StatusIs(kInvalid,
                       "brigade.delay_update is true, but offload_param.device is \"nvme\": it "
                       "needs weights on the device or the host"));
}

TEST(ConfigErrorsTest, NameKeysThatHaveNoEffectBesideTheOthers) {
  EXPECT_THAT(Error(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})"),
              StatusIs(kInvalid, "fp16.enabled is true, but bf16.enabled is true as well"));
  EXPECT_THAT(Error(R"("brigade": {"live_units": 3})"),
              StatusIs(kInvalid, "brigade.live_units is 3, but zero_optimization.stage is 0"));
  EXPECT_THAT(Error(R"("brigade": {"live_units": 3},
                       "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0})"),
              StatusIs(kInvalid,
                       "brigade.live_units is 3, but "
                       "zero_optimization.stage3_prefetch_bucket_size is 0, so nothing is "
                       "gathered ahead"));
  EXPECT_THAT(Error(R"("brigade": {"at_minimum_loss_scale": "clamp"})"),
              StatusIs(kInvalid,
                       "brigade.at_minimum_loss_scale is \"clamp\", but only fp16 with a "
                       "dynamic loss scale has a minimum"));
  EXPECT_THAT(Error(R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0,
                       "cycle_max_lr": 1, "cycle_momentum": false, "decay_lr_rate": 0.5}})"),
              StatusIs(kInvalid,
                       "scheduler.params.decay_lr_rate is 0.5, but a decay needs both "
                       "decay_step_size and decay_lr_rate"));
  EXPECT_OK(Error(R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0,
                     "cycle_max_lr": 1, "cycle_momentum": false, "decay_lr_rate": 0}})"));
}

// Those of values and those of what they say beside one another.
TEST(ConfigErrorsTest, AreListedAtOnce) {
  EXPECT_THAT(
      ParseConfig(R"({"train_batch_size": "8", "steps_per_prints": 10, "amp": {"enabled": true},
                      "fp16": {"enabled": true, "loss_scale": 8, "hysteresis": 2},
                      "bf16": {"enabled": true},
                      "zero_optimization": {"stage": 4, "stage3_max_live_parameter": 1e9},
                      "brigade": {"live_units": 3, "recompute_times": "measured"}})",
                  4)
          .status(),
      StatusIs(
          kInvalid,
          "8 keys are refused:\n"
          "  amp is {\"enabled\":true}, an object; DeepSpeed knows it, but it is not supported "
          "yet: fp16 and bf16 say it\n"
          "  steps_per_prints is 10; there is no such key, the nearest is steps_per_print\n"
          "  train_batch_size is \"8\", a string; it must be a whole number, 1 or more\n"
          "  zero_optimization.stage is 4; it must be a whole number, 0 to 3\n"
          "  zero_optimization.stage3_max_live_parameter is 1000000000.0; there is no such "
          "key, the nearest is zero_optimization.stage3_max_live_parameters\n"
          "  optimizer is not given; one is needed, like {\"type\": \"AdamW\", \"params\": "
          "{\"lr\": 0.001}}; or --lr, for AdamW with that rate\n"
          // Of live_units nothing is known, because the stage is not.
          "  fp16.enabled is true, but bf16.enabled is true as well\n"
          "  brigade.recompute_times is \"measured\", but no activations are made again"));
}

// What a key says is unknown where it is refused; what stands beside it is not.
TEST(ConfigErrorsTest, AreListedBesideOthersOfTheirSection) {
  EXPECT_THAT(
      Error(R"("zero_optimization": {"stage": 1, "stages": 1, "overlap_comm": 2, "zenflow": {},
                                     "offload_optimizer": {"device": "nvme", "ratios": 1}},
               "brigade": {"delay": 1, "delay_warm_up": 3, "file_limits": [1], "dropout": 2})"),
      StatusIs(kInvalid,
               AllOf(HasSubstr("9 keys are refused:\n"), HasSubstr("zero_optimization.stages is 1"),
                     HasSubstr("\n  zero_optimization.offload_optimizer.device is \"nvme\", but "
                               "nvme_path is missing"),
                     HasSubstr("\n  brigade.delay_warm_up is 3, but brigade.delay_update is not "
                               "true"))));
  // Of the key that is meant nothing is known.
  EXPECT_THAT(Error(R"("zero_optimization": {"stage": 1,
                         "offload_optimizer": {"device": "nvme", "nvme_paths": "/d"}})"),
              StatusIs(kInvalid, StartsWith("zero_optimization.offload_optimizer.nvme_paths is")));
  // Params are not known without their type.
  EXPECT_THAT(
      ErrorOfOptimizer(R"({"type": "Adm", "params": {"lr": 0.5}})",
                       R"(, "scheduler": {"type": "WarmupCosine",
                                                  "params": {"total_num_steps": 5}},
                                    "brigade": {"live_units": 3}, "pipeline": {"stages": 3})"),
      StatusIs(kInvalid, AllOf(StartsWith("4 keys are refused:\n  optimizer.type is"),
                               HasSubstr("\n  scheduler.type is \"WarmupCosine\""),
                               HasSubstr("\n  brigade.live_units is 3, but "
                                         "zero_optimization.stage is 0\n  4 ranks cannot be"))));
}

// A file that does not say it in full is of another program, whose flags say the rest.
TEST(ConfigErrorsTest, SayWhatToDoForAuto) {
  constexpr char kAuto[] = R"({"train_batch_size": "auto", "gradient_accumulation_steps": "auto",
      "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto",
                    "total_num_steps": "auto", "warmup_num_steps": 2}},
      "gradient_clipping": "auto", "bf16": {"enabled": "auto"},
      "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto"}})";
  EXPECT_THAT(
      ParseConfig(kAuto, 4).status(),
      StatusIs(
          kInvalid,
          "8 keys are refused:\n"
          "  bf16.enabled is \"auto\", which nothing fills in here: give --precision, leave "
          "the key out for false, or write true or false\n"
          "  gradient_accumulation_steps is \"auto\", which nothing fills in here: give --batch, "
          "leave the key out for what follows from the others, or write a whole number, 1 to 2^20\n"
          "  gradient_clipping is \"auto\", which nothing fills in here: leave the key out for "
          "0.0, "
          "or write a number, 0 or more, and finite as a float\n"
          "  optimizer.params.betas is \"auto\", which nothing fills in here: leave the key out "
          "for "
          "[0.9,0.999], or write an array of two numbers, 0 or more, and less than 1\n"
          "  optimizer.params.lr is \"auto\", which nothing fills in here: give --lr, leave the "
          "key "
          "out for 0.001, or write a number, 0 or more, and finite as a float\n"
          "  scheduler.params.total_num_steps is \"auto\", which nothing fills in here: give "
          "--steps, or write a whole number, 1 to 2^24\n"
          "  scheduler.params.warmup_max_lr is \"auto\", which nothing fills in here: give --lr, "
          "leave the key out for 0.001, or write a number, 0 or more, and finite as a float\n"
          "  train_batch_size is \"auto\", which nothing fills in here: give --batch, leave the "
          "key "
          "out for what follows from the others, or write a whole number, 1 or more"));
  EXPECT_THAT(
      ParseConfig(kAuto, 4, ".", {}, {.batch = 8, .lr = 0.5, .steps = 20}).status(),
      StatusIs(kInvalid, HasSubstr("3 keys are refused:\n  bf16.enabled is \"auto\", which")));
  EXPECT_THAT(
      ParseConfig(R"({"train_batch_size": 4, "fp16": {"enabled": true},
                              "optimizer": {"type": "SGD"}})",
                  4, ".", {}, {.dtype = precision::DType::kBFloat16})
          .status(),
      StatusIs(kInvalid,
               "--precision is \"bf16\", but fp16.enabled and bf16.enabled of the file say fp16"));
  // A flag's value must be one that the key may have.
  EXPECT_THAT(
      ParseConfig(R"({"train_batch_size": 4, "optimizer": {"type": "SGD"},
                      "scheduler": {"type": "WarmupCosineLR", "params": {
                                    "total_num_steps": "auto"}}})",
                  4, ".", {}, {.steps = 20'000'000})
          .status(),
      StatusIs(kInvalid,
               "--steps is 20000000, which scheduler.params.total_num_steps is, being \"auto\"; it "
               "must be a whole number, 1 to 2^24"));
}

TEST(ConfigErrorsTest, NameBatchesAndRatesThatDoNotFitTheFlags) {
  const auto error = [](const std::string& keys, const StepFlags& flags) {
    return ParseConfig(absl::StrCat("{", keys, "}"), 4, ".", {}, flags).status();
  };
  const std::string sgd = R"("optimizer": {"type": "SGD", "params": {"lr": 0.25}})";
  EXPECT_THAT(error(sgd, {.batch = 10}),
              StatusIs(kInvalid,
                       "--batch 10 on 4 ranks: the batch is not micro-batch times accumulation "
                       "steps times ranks; --batch 8 would do"));
  EXPECT_THAT(
      error(absl::StrCat(sgd, R"(, "train_batch_size": 48, "train_micro_batch_size_per_gpu": 3,
                                   "gradient_accumulation_steps": 4)"),
            {.batch = 24}),
      StatusIs(kInvalid,
               "--batch 24, train_micro_batch_size_per_gpu 3, gradient_accumulation_steps 4 on 4 "
               "ranks: the batch is not micro-batch times accumulation steps times ranks; --batch "
               "48 would do"));
  const std::string schedule =
      R"(, "train_batch_size": 4, "scheduler": {"type": "WarmupLR", "params": {)";
  EXPECT_THAT(error(absl::StrCat(sgd, schedule, R"("warmup_max_lr": 0.25}})"), {.lr = 0.5}),
              StatusIs(kInvalid, "--lr is 0.5, but the schedule has rates of its own, up to 0.25"));
  EXPECT_OK(error(absl::StrCat(sgd, schedule, R"("warmup_max_lr": 0.5}})"), {.lr = 0.5}));
  EXPECT_OK(error(absl::StrCat(sgd, schedule, R"("warmup_max_lr": "auto"}})"), {.lr = 0.5}));
  EXPECT_THAT(
      error(R"("train_batch_size": 4, "scheduler": {"type": "WarmupDecayLR",
                        "params": {"total_num_steps": 9, "warmup_num_steps": 2}})",
            {.lr = 0.5}),
      StatusIs(kInvalid, "--lr is 0.5, but the schedule has rates of its own, up to 0.001"));
}

TEST(ConfigErrorsTest, NameWhatTheOptimizerAndItsSumsNeed) {
  EXPECT_THAT(Error(R"("zero_optimization": {"stage": 2}, "brigade": {"accumulation":
                       "at_boundary"})"),
              StatusIs(kInvalid,
                       "brigade.accumulation is \"at_boundary\", but it needs whole gradients, "
                       "which stage 2 does not keep"));
  EXPECT_THAT(ErrorOfOptimizer(R"({"type": "SGD", "params": {"nesterov": true}})"),
              StatusIs(kInvalid,
                       "optimizer.params.nesterov is true, but it needs momentum above 0 and "
                       "dampening 0, and they are 0 and 0"));
  EXPECT_THAT(Error(R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0,
                       "cycle_max_lr": 1, "cycle_momentum": false, "decay_lr_rate": 0.5,
                       "decay_step_size": 3}})"),
              StatusIs(kInvalid,
                       "scheduler.params.total_num_steps is not given; a decay, which never ends, "
                       "is cut there"));
  EXPECT_THAT(Error(R"("fp16": {"enabled": true, "loss_scale": 1e-30})"),
              StatusIs(kInvalid, HasSubstr("but a scale that is not 0 is at least 2^-60")));
  EXPECT_THAT(Error(R"("fp16": {"enabled": true, "min_loss_scale": 8,
                                "initial_scale_power": 2})"),
              StatusIs(kInvalid,
                       "fp16.min_loss_scale is 8, but the first scale is less, 2 to "
                       "initial_scale_power, which is 2"));
  EXPECT_THAT(Error(R"("fp16": {"enabled": true, "initial_scale_power": -2})"),
              StatusIs(kInvalid,
                       "fp16.initial_scale_power is -2, but the smallest scale is more, "
                       "min_loss_scale, which is 1"));
}

// PyTorch's AdamW and DeepSpeed's have other defaults.
TEST(ConfigErrorsTest, AskForTheWeightDecayOfPyTorchsAdamW) {
  const auto error = [](const char* type, const char* params) {
    return ErrorOfOptimizer(absl::StrCat(R"({"type": ")", type, R"(", "params": {)", params, "}}"));
  };
  const auto asks = StatusIs(
      kInvalid,
      "optimizer.params.weight_decay is not given; with torch_adam DeepSpeed takes PyTorch's "
      "AdamW, whose default is 0.01, and else its own, whose default is 0: write which it is");
  EXPECT_THAT(error("AdamW", R"("torch_adam": true)"), asks);
  EXPECT_THAT(error("AdamW", R"("torch_adam": true, "weight_decay": null)"), asks);
  EXPECT_THAT(error("Adam", R"("torch_adam": true)"), asks);
  EXPECT_OK(error("AdamW", R"("torch_adam": true, "weight_decay": 0)"));
  EXPECT_OK(error("Adam", R"("torch_adam": true, "adam_w_mode": false)"));
  EXPECT_OK(error("AdamW", R"("torch_adam": false)"));
  EXPECT_OK(error("AdamW", ""));
}

// Of values, of what they say beside one another, and of what follows from several of them: keys
// and flags, each by its name.
TEST(ConfigErrorsTest, AreListedWithWhatFollowsFromSeveralKeys) {
  const std::string file = R"({"train_batch_size": 33, "optimizer": {"type": "SGD"},
      "pipeline": {"stages": 2}, "bf16": {"enabled": true},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.25}},
      "zero_optimization": {"offload_optimizer": {"device": "cpu"}},
      "brigade": {"topology": "missing.json", "schedule": "interleaved:9"}})";
  EXPECT_THAT(
      ParseConfig(file, 4, ".", {.tensor = 0, .context_exchange = ContextExchange::kRing},
                  {.lr = 0.5, .dtype = precision::DType::kFloat16})
          .status(),
      StatusIs(
          kInvalid,
          "6 keys and flags are refused:\n"
          "  --tensor is 0, but it must be 1 to 32768\n"
          "  --lr is 0.5, but the schedule has rates of its own, up to 0.25\n"
          "  --precision is \"fp16\", but fp16.enabled and bf16.enabled of the file say bf16\n"
          "  --context_exchange is \"ring\", but no ranks share texts: --context_parallel is not "
          "above 1\n"
          "  zero_optimization.offload_optimizer.device is \"cpu\", but in stage 0 every rank "
          "updates everything; stages 1 to 3 share it out\n"
          "  brigade.topology is \"missing.json\", but cannot open ./missing.json: No such file "
          "or directory"));
  // Without --tensor the grid is known, and so is the batch.
  EXPECT_THAT(
      ParseConfig(file, 4, ".", {}).status(),
      StatusIs(kInvalid, HasSubstr("train_batch_size 33 on 2 ranks: the batch is not micro-batch "
                                   "times accumulation steps times ranks; train_batch_size 32 "
                                   "would do")));
  EXPECT_THAT(ParseConfig(file, 3, ".", {}).status(),
              StatusIs(kInvalid, HasSubstr("3 ranks cannot be shared out by pipeline.stages 2: 2 "
                                           "does not divide 3")));
}

TEST(ConfigErrorsTest, NameFlagsThatCannotBe) {
  const auto error = [](const ModelParallelism& flags) {
    return ParseConfig(R"({"train_batch_size": 8, "optimizer": {"type": "SGD"}})", 4, ".", flags)
        .status();
  };
  for (const int number : {0, -1, 40000}) {
    const std::string text = absl::StrCat(" is ", number, ", but it must be 1 to ");
    EXPECT_THAT(error({.tensor = number}), StatusIs(kInvalid, "--tensor" + text + "32768"));
    EXPECT_THAT(error({.context = number}),
                StatusIs(kInvalid, "--context_parallel" + text + "32768"));
    EXPECT_THAT(error({.tensor_shards = number}),
                StatusIs(kInvalid, "--tensor_shards" + text + "32768"));
    EXPECT_THAT(error({.tensor_overlap = number}),
                StatusIs(kInvalid, "--tensor_overlap" + text + "256"));
    EXPECT_THAT(error({.pipeline = number}), StatusIs(kInvalid, "--pipeline" + text + "32768"));
  }
  EXPECT_THAT(error({.tensor = 4, .tensor_shards = 2}),
              StatusIs(kInvalid,
                       "--tensor_shards is 2, but 4 ranks cannot share 2 shards: that is one for "
                       "each rank, or a power of two that they divide"));
  EXPECT_THAT(error({.tensor_overlap = 2}),
              StatusIs(kInvalid,
                       "--tensor_overlap is 2, but the model has one tensor shard: nothing is "
                       "exchanged"));
  EXPECT_THAT(
      error({.schedule = parallel::ScheduleChoice(), .partition = parallel::PartitionChoice()}),
      StatusIs(kInvalid,
               "2 flags are refused:\n"
               "  --partition is \"parameters\", but no ranks share the model's layers: "
               "--pipeline is not above 1\n"
               "  --schedule is \"1f1b\", but no ranks share the model's layers: "
               "--pipeline is not above 1"));
  EXPECT_THAT(error({.pipeline = 2, .schedule = parallel::ParseSchedule("interleaved:9").value()}),
              StatusIs(kInvalid, StartsWith("--schedule is \"interleaved:9\", of 9 chunks")));
}

TEST(ConfigErrorsTest, NameABatchThatWouldDo) {
  const auto error = [](const char* sizes) {
    return ParseConfig(absl::StrCat(R"({"optimizer": {"type": "SGD"}, )", sizes, "}"), 4).status();
  };
  EXPECT_THAT(error(R"("train_batch_size": 33)"),
              StatusIs(kInvalid,
                       "train_batch_size 33 on 4 ranks: the batch is not micro-batch times "
                       "accumulation steps times ranks; train_batch_size 32 would do"));
  EXPECT_THAT(error(R"("train_batch_size": 32, "train_micro_batch_size_per_gpu": 3,
                       "gradient_accumulation_steps": 2)"),
              StatusIs(kInvalid, HasSubstr("train_batch_size 24 would do")));
  EXPECT_THAT(error(R"("train_batch_size": 1)"),
              StatusIs(kInvalid, HasSubstr("train_batch_size 4 would do")));
  EXPECT_THAT(error(R"("gradient_accumulation_steps": 2)"),
              StatusIs(kInvalid,
                       "train_batch_size is not given, and neither is "
                       "train_micro_batch_size_per_gpu; write one of them, or give --batch"));
  EXPECT_THAT(error(R"("train_batch_size": 0)"),
              StatusIs(kInvalid, "train_batch_size is 0; it must be a whole number, 1 or more"));
  for (const int ranks : {0, -1, std::numeric_limits<int>::max()}) {
    EXPECT_THAT(
        ParseConfig(R"({"optimizer": {"type": "SGD"}, "train_batch_size": 4})", ranks),
        StatusIs(kInvalid, HasSubstr(absl::StrCat("on ", ranks,
                                                  " ranks: a number is negative or too large"))));
  }
}

TEST(ConfigErrorsTest, BeginWithTheFile) {
  EXPECT_THAT(
      ReadConfig("no/such.json", 4),
      StatusIs(absl::StatusCode::kNotFound, "cannot open no/such.json: No such file or directory"));
  EXPECT_THAT(ReadConfig("/", 4), StatusIs(kInvalid, "/ is a folder, not a file"));
  EXPECT_THAT(ReadConfig("/dev/zero", 4), StatusIs(kInvalid, "/dev/zero is a device, not a file"));
  const std::string path = ::testing::TempDir() + "/config.json";
  std::ofstream(path) << std::string((1 << 20) + 1, ' ');
  EXPECT_THAT(ReadConfig(path, 4), StatusIs(absl::StatusCode::kResourceExhausted,
                                            path + " has 1048577 bytes; at most 1048576 are read"));
  std::ofstream(path) << "";
  EXPECT_THAT(ReadConfig(path, 4),
              StatusIs(kInvalid, StartsWith(path + ": not valid JSON: parse error at line 1, "
                                                   "column 1")));
  std::ofstream(path) << R"({"stage": 2, "train_batch_size": 4, "optimizer": {"type": "SGD"}})";
  EXPECT_THAT(ReadConfig(path, 4), StatusIs(kInvalid, path + ": stage is 2; there is no such key, "
                                                             "the nearest is "
                                                             "zero_optimization.stage"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace brigade::train
