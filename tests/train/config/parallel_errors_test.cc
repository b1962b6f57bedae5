// What is wrong with grids, pipelines, and what ranks exchange.

#include <fstream>
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
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParallelErrorsTest, NameWhatTensorRanksCannotExchange) {
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
TEST(ParallelErrorsTest, NameWhatRanksDoNotShare) {
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

TEST(ParallelErrorsTest, NameGroupsThatCannotBe) {
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

TEST(ParallelErrorsTest, NameWhatCannotStandBesideExchangesOfGradients) {
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

TEST(ParallelErrorsTest, NameReplicasThatCannotBe) {
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

TEST(ParallelErrorsTest, NesterovsMomentumIsOfRoundsWithMomentum) {
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

TEST(ParallelErrorsTest, NameWhatIsNotSoOfAPipeline) {
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

TEST(ParallelErrorsTest, NameWhatHasNoEffectOnAPipeline) {
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

TEST(ParallelErrorsTest, NameScheduleStagesAndMicroBatchesThatDoNotFit) {
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

TEST(ParallelErrorsTest, NameWhatAnAlgorithmNeedsAndLacks) {
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

TEST(ParallelErrorsTest, NameTheTopologyThatCannotBe) {
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

}  // namespace
}  // namespace brigade::train
