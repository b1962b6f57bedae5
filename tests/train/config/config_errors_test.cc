#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
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

// What is wrong with a config of these keys, an optimizer, and a batch.
absl::Status Error(const std::string& keys) {
  return ParseConfig(
             absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )", keys, "}"),
             4)
      .status();
}

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

TEST(ConfigErrorsTest, NameWhatTensorRanksCannotExchange) {
  EXPECT_THAT(Error(R"("tensor_parallel": {"tp_overlap_comm": true})"),
              StatusIs(kInvalid,
                       "tensor_parallel.tp_overlap_comm is true, but the model has one tensor "
                       "shard: nothing is exchanged"));
  EXPECT_OK(Error(R"("tensor_parallel": {"tp_overlap_comm": false})"));
  EXPECT_THAT(Error(R"("brigade": {"tensor_pieces": 257})"),
              StatusIs(kInvalid, StartsWith("brigade.tensor_pieces is 257")));
  EXPECT_THAT(Error(R"("tensor_parallel": {"tp_overlap_comm": 4})"),
              StatusIs(kInvalid, StartsWith("tensor_parallel.tp_overlap_comm is 4")));
}

// Flags and the file say together what has an effect.
TEST(ConfigErrorsTest, NameWhatRanksDoNotShare) {
  const auto config = [](const char* keys) {
    return absl::StrCat(R"({"train_batch_size": 4, "optimizer": {"type": "SGD"}, )", keys, "}");
  };
  const ModelParallelism tensor = {.tensor = 2}, rows = {.tensor = 2, .sequence_parallel = true};
  const std::string gathered = config(R"("brigade": {"keep_gathered": true})");
  EXPECT_THAT(ParseConfig(gathered, 2, ".", tensor).status(),
              StatusIs(kInvalid, HasSubstr("nothing is gathered: brigade.sequence_parallel "
                                           "(--sequence_parallel) is not true")));
  EXPECT_OK(ParseConfig(gathered, 2, ".", rows));
  const std::string partitioned =
      config(R"("activation_checkpointing": {"partition_activations": true})");
  EXPECT_THAT(ParseConfig(partitioned, 2, ".", tensor).status(),
              StatusIs(kInvalid,
                       "activation_checkpointing.partition_activations is true, but ranks share "
                       "activations as brigade.sequence_parallel (--sequence_parallel) says"));
  EXPECT_OK(ParseConfig(partitioned, 2, ".", rows));
  const std::string sums = config(R"("brigade": {"tensor_sums": "model"})");
  EXPECT_THAT(ParseConfig(sums, 2).status(),
              StatusIs(kInvalid, HasSubstr("brigade.tensor_sums is \"model\", but a tensor rank "
                                           "alone sends no sums")));
  EXPECT_EQ(ParseConfig(sums, 2, ".", tensor)->sum_wire, parallel::SumWire::kModel);
  EXPECT_THAT(ParseConfig(config(R"("tensor_parallel": {"tp": {"tp_size": 2},
                            "tensor_parallel": {"tp_size": 4}})"),
                          4)
                  .status(),
              StatusIs(kInvalid, HasSubstr("tensor_parallel.tp is the same section")));
}

TEST(ConfigErrorsTest, NameGroupsThatCannotBe) {
  EXPECT_THAT(
      Error(R"("brigade": {"shard_ranks": 3})"),
      StatusIs(kInvalid,
               "brigade.shard_ranks is 3, but groups of so many ranks do not divide 4 ranks "
               "with the same weights"));
  EXPECT_THAT(Error(R"("zero_optimization": {"mics_shard_size": 4},
                       "tensor_parallel": {"autotp_size": 2})"),
              StatusIs(kInvalid,
                       "zero_optimization.mics_shard_size is 4, but groups of so many ranks do not "
                       "divide 2 ranks with the same weights"));
  EXPECT_THAT(Error(R"("zero_optimization": {"mics_shard_size": 0})"),
              StatusIs(kInvalid,
                       "zero_optimization.mics_shard_size is 0, but a group has at least one rank; "
                       "-1 stands for all"));
  EXPECT_THAT(
      Error(R"("zero_optimization": {"mics_shard_size": 4},
                       "brigade": {"shard_ranks": 2})"),
      StatusIs(kInvalid, "zero_optimization.mics_shard_size is 4, but brigade.shard_ranks is 2"));
  EXPECT_THAT(Error(R"("zero_optimization": {"stage": 3, "mics_shard_size": 2,
                                             "zero_hpz_partition_size": 4})"),
              StatusIs(kInvalid,
                       "zero_optimization.zero_hpz_partition_size is 4, but so many ranks do not "
                       "divide 2 ranks that share a state"));
  EXPECT_THAT(ParseConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}})", 4, ".",
                          {.shard_ranks = 3})
                  .status(),
              StatusIs(kInvalid, HasSubstr("--shard_ranks is 3, but groups")));
  EXPECT_THAT(ParseConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}})", 4, ".",
                          {.shard_ranks = 0})
                  .status(),
              StatusIs(kInvalid, "--shard_ranks is 0, but it must be 1 to 32768"));
}

TEST(ConfigErrorsTest, NameWhatCannotStandBesideExchangesOfGradients) {
  const auto refused = [](const char* keys, const char* text) {
    EXPECT_THAT(Error(keys), StatusIs(kInvalid, HasSubstr(text)));
  };
  refused(R"("brigade": {"gradient_compression": "top_k"}, "zero_optimization": {"stage": 3})",
          "brigade.gradient_compression is \"top_k\", but zero_optimization.stage is 3, which has "
          "no memory for whole gradients");
  refused(R"("brigade": {"gradient_compression": "power_sgd"},
             "zero_optimization": {"stage": 2, "zero_quantized_gradients": true,
                                   "zeropp_loco_param": {}})",
          "brigade.gradient_compression is \"power_sgd\", but "
          "zero_optimization.zero_quantized_gradients is true; gradients cross the wire in one of "
          "the two ways");
  refused(R"("brigade": {"gradient_compression": "one_bit"},
             "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}})",
          "brigade.gradient_compression is \"one_bit\", but zero_optimization.offload_optimizer is "
          "given");
  refused(R"("brigade": {"gradient_compression": "one_bit", "shard_ranks": 2},
             "zero_optimization": {"stage": 3, "zero_quantized_gradients": true,
                                   "zeropp_loco_param": {}})",
          "brigade.gradient_compression is \"one_bit\", but zero_optimization.zeropp_loco_param is "
          "given; a state has the errors of one of the two");
  EXPECT_OK(Error(R"("brigade": {"gradient_compression": "one_bit", "shard_ranks": 2},
                     "zero_optimization": {"stage": 3, "zero_quantized_gradients": true})"));
  EXPECT_OK(Error(R"("brigade": {"gradient_compression": "power_sgd", "replicas": 2})"));
  const auto with_optimizer = [](const char* type, const char* keys, const StepFlags& flags = {}) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": ")", type,
                                    "\"}", keys, "}"),
                       4, ".", {}, flags)
        .status();
  };
  EXPECT_THAT(with_optimizer("Lamb", R"(, "brigade": {"gradient_compression": "one_bit"})"),
              StatusIs(kInvalid,
                       "brigade.gradient_compression is \"one_bit\", but optimizer.type is "
                       "\"Lamb\", whose norms of tensors take the gradients of slices"));
  EXPECT_THAT(
      with_optimizer("Lamb", "", {.gradient_compression = zero::GradientCompression::kPowerSgd}),
      StatusIs(kInvalid, HasSubstr("--gradient_compression is \"power_sgd\", but "
                                   "optimizer.type is \"Lamb\"")));
  EXPECT_THAT(with_optimizer("OneBitAdam", R"(, "brigade": {"gradient_compression": "top_k"})"),
              StatusIs(kInvalid, HasSubstr("optimizer.type is \"OneBitAdam\", which exchanges "
                                           "first moments")));
  EXPECT_THAT(with_optimizer("OneBitAdam", R"(, "zero_optimization": {"stage": 3})"),
              StatusIs(kInvalid, HasSubstr("optimizer.type is \"OneBitAdam\", but "
                                           "zero_optimization.stage is 3")));
  EXPECT_THAT(with_optimizer("OneBitLamb", R"(, "brigade": {"gradient_compression": "top_k"})"),
              StatusIs(kInvalid, HasSubstr("optimizer.type is \"OneBitLamb\", which exchanges "
                                           "first moments")));
  EXPECT_THAT(with_optimizer("OneBitLamb", R"(, "zero_optimization": {"stage": 3})"),
              StatusIs(kInvalid, HasSubstr("optimizer.type is \"OneBitLamb\", but "
                                           "zero_optimization.stage is 3")));
  EXPECT_THAT(with_optimizer("ZeroOneAdam", R"(, "brigade": {"gradient_compression": "top_k"})"),
              StatusIs(kInvalid, HasSubstr("optimizer.type is \"ZeroOneAdam\", which exchanges "
                                           "first moments")));
  EXPECT_THAT(with_optimizer("ZeroOneAdam", R"(, "brigade": {"shard_ranks": 2})"),
              StatusIs(kInvalid, HasSubstr("\"ZeroOneAdam\", but brigade.shard_ranks is given and "
                                           "local_step_clipper 16; the ranks of a group sum")));
  EXPECT_THAT(with_optimizer("ZeroOneAdam", R"(, "brigade": {"replicas": 2})"),
              StatusIs(kInvalid, HasSubstr("local_step_clipper is 16; between meetings the ranks "
                                           "of a replica have weights of their own")));
  EXPECT_THAT(with_optimizer("OneBitLamb", R"(, "tensor_parallel": {"autotp_size": 2})"),
              StatusIs(kInvalid, HasSubstr("\"OneBitLamb\", whose rate goes by norms")));
  // Keys of another method, and of none.
  refused(R"("brigade": {"gradient_compression": "top_k", "gradient_compression_rank": 8})",
          "brigade.gradient_compression_rank is 8, but gradient_compression is not \"power_sgd\"");
  refused(R"("brigade": {"gradient_compression": "one_bit", "gradient_compression_density": 0.1})",
          "brigade.gradient_compression_density is 0.1, but gradient_compression is not \"top_k\"");
  refused(R"("brigade": {"gradient_compression_start_step": 3})",
          "brigade.gradient_compression_start_step is 3, but gradient_compression is not given");
}

TEST(ConfigErrorsTest, NameReplicasThatCannotBe) {
  const auto refused = [](const char* keys, const char* text) {
    EXPECT_THAT(Error(keys), StatusIs(kInvalid, HasSubstr(text)));
  };
  refused(R"("brigade": {"replicas": 3})",
          "brigade.replicas is 3, but so many replicas do not divide 4 ranks");
  refused(R"("brigade": {"replica_period": 5})",
          "brigade.replica_period is 5, but there are no replicas: brigade.replicas (--replicas) "
          "is not given");
  refused(
      R"("brigade": {"replicas": 2, "shard_ranks": 4})",
      "brigade.shard_ranks is 4, but groups of so many ranks do not divide 2 ranks of a replica");
  EXPECT_OK(Error(R"("brigade": {"replicas": 2, "shard_ranks": 1})"));
  refused(R"("brigade": {"replicas": 2}, "tensor_parallel": {"autotp_size": 2})",
          "brigade.replicas is 2, but ranks share a model or texts");
  refused(R"("brigade": {"replicas": 2},
             "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})",
          "brigade.replicas is 2, but the optimizer state is on the host or in a file");
  refused(R"("brigade": {"replicas": 2, "replica_period": 4, "replica_fragments": 2,
                         "replica_delay": 2})",
          "brigade.replica_delay is 2, but it must be below 2, the steps between two rounds");
  refused(R"("brigade": {"replicas": 2, "replica_period": 2, "replica_fragments": 3})",
          "brigade.replica_fragments is 3, but it is above brigade.replica_period, 2");
  const auto of_flags = [](const ReplicaFlags& flags) {
    return ParseConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}})", 4, ".",
                       {.replicas = flags});
  };
  EXPECT_THAT(of_flags({.replicas = 0}).status(),
              StatusIs(kInvalid, "--replicas is 0, but it must be 1 to 32768"));
  EXPECT_THAT(of_flags({.replicas = 2, .momentum = 1.0}).status(),
              StatusIs(kInvalid, HasSubstr("--outer_momentum is 1.0, but it must be at least 0")));
  EXPECT_THAT(of_flags({.mix = 0.5}).status(),
              StatusIs(kInvalid, HasSubstr("--replica_mix is 0.5, but there are no replicas")));
  const auto right = of_flags({.replicas = 2, .period = 7, .fragments = 2, .delay = 1});
  ASSERT_OK(right);
  EXPECT_TRUE(right->outer.nesterov);
  EXPECT_EQ(right->replicas, 2);
  EXPECT_EQ(right->outer.period, 7);
  EXPECT_EQ(right->outer.lr, 0.7);
}

TEST(ConfigErrorsTest, NesterovsMomentumIsOfRoundsWithMomentum) {
  const auto of = [](const std::string& brigade) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"},
                                        "brigade": {)",
                                    brigade, "}}"),
                       4);
  };
  const auto without = of(R"("replicas": 2, "outer_nesterov": false)");
  ASSERT_OK(without);
  EXPECT_FALSE(without->outer.nesterov);
  EXPECT_THAT(of(R"("replicas": 2, "outer_momentum": 0, "outer_nesterov": true)").status(),
              StatusIs(kInvalid, HasSubstr("rounds have no momentum")));
  EXPECT_THAT(of(R"("outer_nesterov": true)").status(),
              StatusIs(kInvalid, HasSubstr("there are no replicas")));
}

TEST(ConfigErrorsTest, NameWhatIsNotSoOfAPipeline) {
  const auto error = [](const std::string& pipeline, const std::string& brigade = "",
                        const ModelParallelism& flags = {}) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 24, "gradient_accumulation_steps": 6,
                                        "optimizer": {"type": "Adam"}, "pipeline": {)",
                                    pipeline, R"(}, "brigade": {)", brigade, "}}"),
                       4, ".", flags)
        .status();
  };
  EXPECT_OK(error(R"("stages": 4)"));
  EXPECT_THAT(
      error(R"("stages": "all")"),
      StatusIs(kInvalid,
               "pipeline.stages is \"all\", a string; it must be a whole number, 1 to 2^15, "
               "or \"auto\""));
  EXPECT_THAT(error(R"("stages": 0)"), StatusIs(kInvalid, StartsWith("pipeline.stages is 0; it")));
  EXPECT_THAT(error(R"("stagess": 4)"), StatusIs(kInvalid,
                                                 "pipeline.stagess is 4; there is no such key, the "
                                                 "nearest is pipeline.stages"));
  EXPECT_THAT(
      error(R"("stages": 3)"),
      StatusIs(kInvalid, "4 ranks cannot be shared out by pipeline.stages 3: 3 does not divide 4"));
  EXPECT_THAT(error(R"("stages": 4)", "", {.tensor = 2, .pipeline = 3}),
              StatusIs(kInvalid,
                       "4 ranks cannot be shared out by --tensor 2 x --pipeline 3: 6 does not "
                       "divide 4"));
  // DeepSpeed's methods that have no meaning here, and which ones have.
  EXPECT_THAT(
      error(R"("stages": 4, "partition": "uniform")"),
      StatusIs(kInvalid,
               "pipeline.partition is \"uniform\", but brigade.partition has boundaries for other "
               "numbers of layers, as \"0,3,6\""));
  EXPECT_THAT(error(R"("stages": 4, "partition": "type:Block")"),
              StatusIs(kInvalid, HasSubstr("has boundaries for other numbers of layers")));
  EXPECT_THAT(error(R"("stages": 4, "partition": "best")"),
              StatusIs(kInvalid, HasSubstr("is \"best\", but by what parts are best "
                                           "brigade.partition says, \"flops\" or \"time\"")));
  EXPECT_THAT(error(R"("stages": 4, "partition": 4)"),
              StatusIs(kInvalid,
                       "pipeline.partition is 4; it must be \"parameters\", \"uniform\", \"best\" "
                       "or \"type:NAME\""));
  EXPECT_THAT(error(R"("seed_layers": 1)"),
              StatusIs(kInvalid, "pipeline.seed_layers is 1; it must be true or false"));
  EXPECT_THAT(
      error(R"("use_reentrant": "no")"),
      StatusIs(kInvalid, "pipeline.use_reentrant is \"no\", a string; it must be true or false"));
  EXPECT_THAT(error("", R"("schedule": "2f2b")"),
              StatusIs(kInvalid,
                       "brigade.schedule is \"2f2b\", a string; it must be gpipe, 1f1b, "
                       "interleaved:V with V from 2 on, zb-h1 or zb-v"));
  EXPECT_THAT(error("", R"("partition": "3,6")"),
              StatusIs(kInvalid,
                       "brigade.partition is \"3,6\", a string; it must be parameters, flops, time "
                       "or ascending boundaries from 0 on, as \"0,3,6\""));
  EXPECT_THAT(error("", R"("tied_gradients": "none")"),
              StatusIs(kInvalid, HasSubstr("it must be \"apart\" or \"together\"")));
}

TEST(ConfigErrorsTest, NameWhatHasNoEffectOnAPipeline) {
  const auto error = [](const std::string& keys, const ModelParallelism& flags = {}) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 24, "gradient_accumulation_steps": 6,
                                        "optimizer": {"type": "Adam"}, )",
                                    keys, "}"),
                       4, ".", flags)
        .status();
  };
  const std::string none =
      ", but no ranks share the model's layers: pipeline.stages (--pipeline) is not above 1";
  for (const auto& [key, value] :
       {std::pair("schedule", R"("1f1b")"), std::pair("partition", R"("flops")")}) {
    const std::string keys = absl::StrCat("\"brigade\": {\"", key, "\": ", value, "}");
    EXPECT_THAT(error(keys),
                StatusIs(kInvalid, absl::StrCat("brigade.", key, " is ", value, none)));
    EXPECT_OK(error(keys, {.pipeline = 4}));
  }
  EXPECT_THAT(error(R"("pipeline": {"stages": 2}, "brigade": {"tied_gradients": "together"})"),
              StatusIs(kInvalid,
                       "brigade.tied_gradients is \"together\", but the first and the last of 2 "
                       "stages have gradients of their own of the tied weights: it must be "
                       "\"apart\""));
  EXPECT_THAT(
      error(R"("pipeline": {"stages": 2, "partition": "parameters"},
                       "brigade": {"partition": "0,2,6"})"),
      StatusIs(kInvalid, "pipeline.partition is \"parameters\", but brigade.partition is 0,2,6"));
  const std::string tensor = R"("tensor_parallel": {"autotp_size": 2}, "pipeline": {"stages": 2, )";
  EXPECT_THAT(error(absl::StrCat(tensor, R"("pipe_partitioned": true})")),
              StatusIs(kInvalid,
                       "pipeline.pipe_partitioned is true, but tensor ranks send all rows, as "
                       "brigade.sequence_parallel (--sequence_parallel) says"));
  EXPECT_THAT(
      error(absl::StrCat(tensor, R"("grad_partitioned": false})"), {.sequence_parallel = true}),
      StatusIs(kInvalid, HasSubstr("grad_partitioned is false, but tensor ranks send parts of the "
                                   "rows, as brigade.sequence_parallel")));
  EXPECT_THAT(error(R"("pipeline": {"activation_checkpoint_interval": 2},
                       "brigade": {"recompute": "block"})"),
              StatusIs(kInvalid,
                       "pipeline.activation_checkpoint_interval is 2, but brigade.recompute says "
                       "which activations are made again"));
  EXPECT_THAT(error(R"("pipeline": {"activation_checkpoint_interval": 0},
                       "activation_checkpointing": {})"),
              StatusIs(kInvalid,
                       "pipeline.activation_checkpoint_interval is 0, but activation_checkpointing "
                       "asks to make activations again"));
}

TEST(ConfigErrorsTest, NameScheduleStagesAndMicroBatchesThatDoNotFit) {
  const auto error = [](const std::string& schedule) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 6, "gradient_accumulation_steps": 6,
                                        "optimizer": {"type": "Adam"}, "pipeline": {"stages": 4},
                                        "brigade": {"schedule": ")",
                                    schedule, "\"}}"),
                       4)
        .status();
  };
  EXPECT_OK(error("zb-v"));
  EXPECT_THAT(
      error("interleaved:2"),
      StatusIs(kInvalid,
               "pipeline.stages 4, brigade.schedule interleaved:2, 6 micro-batches on each rank: "
               "pipeline: interleaved:2 takes micro-batches in groups of 4, one for each stage: of "
               "6 are 2 left"));
  EXPECT_THAT(error("interleaved:9"),
              StatusIs(kInvalid,
                       "brigade.schedule is \"interleaved:9\", of 9 chunks on each stage; it must "
                       "be at most 8"));
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

TEST(ConfigErrorsTest, NameWhatAnAlgorithmNeedsAndLacks) {
  EXPECT_THAT(
      Error(R"("brigade": {"algorithm": "rings"})"),
      StatusIs(kInvalid,
               "brigade.algorithm is \"rings\", a string; it must be \"auto\" or \"direct\" "
               "or \"ring\" or \"bidirectional_ring\" or \"halving_doubling\" or "
               "\"hierarchical\" or \"double_tree\" or \"parameter_server\" or \"native\""));
  EXPECT_THAT(Error(R"("brigade": {"rank_per_node": 2})"),
              StatusIs(kInvalid,
                       "brigade.rank_per_node is 2; there is no such key, the nearest is "
                       "brigade.ranks_per_node"));
  EXPECT_THAT(
      Error(R"("brigade": {"ranks_per_node": 0})"),
      StatusIs(kInvalid, "brigade.ranks_per_node is 0; it must be a whole number, 1 to 2^20"));
  EXPECT_THAT(Error(R"("brigade": {"topology": 8})"),
              StatusIs(kInvalid, "brigade.topology is 8; it must be a text that is not empty"));
  EXPECT_THAT(
      Error(R"("brigade": {"algorithm": "ring"})"),
      StatusIs(kInvalid, "brigade.algorithm is \"ring\", but it has no reduction rounded_once"));
  EXPECT_THAT(
      Error(R"("brigade": {"algorithm": "native", "reduction": "fp32_partials"})"),
      StatusIs(kInvalid, "brigade.algorithm is \"native\", but it has no reduction fp32_partials"));
  const std::string hierarchical = R"("algorithm": "hierarchical", "reduction": "fp32_partials")";
  EXPECT_THAT(Error(absl::StrCat(R"("brigade": {)", hierarchical, "}")),
              StatusIs(kInvalid,
                       "brigade.algorithm is \"hierarchical\", but it needs "
                       "brigade.ranks_per_node or brigade.topology"));
  EXPECT_THAT(Error(absl::StrCat(R"("brigade": {"ranks_per_node": 3, )", hierarchical, "}")),
              StatusIs(kInvalid,
                       "brigade.algorithm is \"hierarchical\", but it needs nodes of one size, and "
                       "they have 1 to 3 ranks"));
  EXPECT_THAT(Error(R"("brigade": {"ranks_per_node": 2})"),
              StatusIs(kInvalid,
                       "brigade.ranks_per_node is 2, but without brigade.topology algorithm auto "
                       "asks for no nodes"));
  EXPECT_THAT(
      Error(R"("brigade": {"algorithm": "direct", "topology": "machine.json"})"),
      StatusIs(kInvalid,
               "brigade.topology is \"machine.json\", but algorithm direct asks for no topology"));
}

TEST(ConfigErrorsTest, NameTheTopologyThatCannotBe) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/machine.json");
  const auto error = [&](const std::string& more) {
    std::ofstream(path) << absl::StrCat(R"({"inside": {"latency_us": 1, "gigabytes_per_s": 2},
      "between": {"latency_us": 3, "gigabytes_per_s": 4})",
                                        more);
    return Error(absl::StrCat(R"("brigade": {"topology": ")", path, "\"}"));
  };
  const std::string it = absl::StrCat("brigade.topology is \"", path, "\", but ");
  EXPECT_OK(error(R"(, "ranks_of_node": [4]})"));
  EXPECT_THAT(error(""), StatusIs(kInvalid, absl::StrCat(it, "the topology is not JSON")));
  EXPECT_THAT(error("}"),
              StatusIs(kInvalid, absl::StrCat(it,
                                              "it has no ranks_of_node: brigade.ranks_per_node "
                                              "is needed")));
  EXPECT_THAT(error(R"(, "ranks_of_node": [8, 8]})"),
              StatusIs(kInvalid, absl::StrCat(it,
                                              "its nodes have 16 ranks, and 4 train; "
                                              "brigade.ranks_per_node would replace them")));
  EXPECT_THAT(
      Error(R"("brigade": {"topology": "missing.json"})"),
      StatusIs(
          kInvalid,
          "brigade.topology is \"missing.json\", but cannot open ./missing.json: No such file or "
          "directory"));
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
