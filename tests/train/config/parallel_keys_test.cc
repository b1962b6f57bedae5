// Grids, pipelines, and what ranks exchange by which way.

#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/config/small_config.h"
#include "brigade/train/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
namespace brigade::train {
namespace {

TEST(ParallelKeysTest, ReadsWhatTensorRanksExchangeBesideProducts) {
  struct Case {
    const char* keys;
    int flag;
    int pieces;
    bool overlap;
  };
  for (const Case& c :
       {Case{R"("tensor_parallel": {"autotp_size": 2})", 0, 1, false},
        Case{R"("tensor_parallel": {"autotp_size": 2, "tp_overlap_comm": true})", 0, 4, true},
        Case{R"("tensor_parallel": {"autotp_size": 2, "tp_overlap_comm": true},
                "brigade": {"tensor_pieces": 8})",
             0, 8, true},
        Case{R"("tensor_parallel": {"autotp_size": 2}, "brigade": {"tensor_pieces": 8})", 0, 8,
             false},
        Case{R"("tensor_parallel": {"autotp_size": 2}, "brigade": {"tensor_pieces": 8})", 2, 2,
             true},
        Case{R"("tensor_parallel": {"autotp_size": 1, "tp_overlap_comm": true},
                "brigade": {"tensor_shards": 2})",
             0, 4, true}}) {
    SCOPED_TRACE(absl::StrCat(c.keys, ", flag ", c.flag));
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        ParseConfig(
            absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )", c.keys, "}"),
            4, ".", {.tensor_overlap = c.flag == 0 ? std::nullopt : std::optional<int>(c.flag)}));
    EXPECT_EQ(config.tensor_pieces, c.pieces);
    EXPECT_EQ(config.tensor_overlap, c.overlap);
  }
}

TEST(ParallelKeysTest, ReadsHowContextRanksAttend) {
  const std::pair<const char*, ContextExchange> values[] = {
      {R"("ulysses")", ContextExchange::kUlysses},
      {R"("ring")", ContextExchange::kRing},
      {R"("a2a")", ContextExchange::kUlysses},
      {R"("p2p")", ContextExchange::kRing}};
  for (const auto& [value, exchange] : values) {
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        With(absl::StrCat(R"(, "sequence_parallel_size": 2, "brigade": {"context_exchange": )",
                          value, "}")));
    EXPECT_EQ(config.grid.context, 2);
    EXPECT_EQ(config.context_exchange, exchange);
    EXPECT_EQ(ParseContextExchange(ToString(exchange)), exchange);
  }
  ASSERT_OK_AND_ASSIGN(const TrainConfig none, With(R"(, "sequence_parallel_size": 2)"));
  EXPECT_EQ(none.context_exchange, ContextExchange::kUlysses);
  // A flag comes first.
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig flagged,
      ParseConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                      "brigade": {"context_exchange": "ulysses"}})",
                  4, ".", {.context = 4, .context_exchange = ContextExchange::kRing}));
  EXPECT_EQ(flagged.context_exchange, ContextExchange::kRing);
  EXPECT_THAT(
      With(R"(, "sequence_parallel_size": 2, "brigade": {"context_exchange": "mesh"})").status(),
      brigade::testing::StatusIs(
          absl::StatusCode::kInvalidArgument,
          "brigade.context_exchange is \"mesh\", a string; it must be \"ulysses\" or "
          "\"ring\" or \"a2a\" or \"p2p\""));
}

TEST(ParallelKeysTest, ReadsTheRanksThatShareAState) {
  const auto shards_of = [](const std::string& keys, const ModelParallelism& flags = {}) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )",
                                    keys, "}"),
                       8, ".", flags)
        .value()
        .zero.shard_ranks;
  };
  EXPECT_EQ(shards_of(R"("bf16": {"enabled": true})"), 0);
  EXPECT_EQ(shards_of(R"("zero_optimization": {"stage": 1, "mics_shard_size": -1})"), 0);
  EXPECT_EQ(shards_of(R"("zero_optimization": {"stage": 1, "mics_shard_size": 4})"), 4);
  EXPECT_EQ(shards_of(R"("brigade": {"shard_ranks": 2})"), 2);
  EXPECT_EQ(shards_of(R"("brigade": {"shard_ranks": 2},
                         "zero_optimization": {"mics_shard_size": 2})"),
            2);
  EXPECT_EQ(shards_of(R"("brigade": {"shard_ranks": 2})", {.shard_ranks = 8}), 8);
  // Of 4 ranks with the same weights, of which 2 share a text.
  EXPECT_EQ(
      shards_of(R"("brigade": {"shard_ranks": 4}, "sequence_parallel_size": 2)", {.tensor = 2}), 4);
}

TEST(ParallelKeysTest, ReadsTheNearRanks) {
  const auto near_of = [](const std::string& keys) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                                        "zero_optimization": {)",
                                    keys, "}}"),
                       8)
        .value()
        .zero.hpz_ranks;
  };
  EXPECT_EQ(near_of(R"("stage": 3)"), 0);
  EXPECT_EQ(near_of(R"("stage": 3, "zero_hpz_partition_size": 1)"), 0);
  EXPECT_EQ(near_of(R"("stage": 3, "zero_hpz_partition_size": 4)"), 4);
  EXPECT_EQ(near_of(R"("stage": 3, "zero_hpz_partition_size": 2, "mics_shard_size": 4)"), 2);
  EXPECT_EQ(near_of(R"("stage": 2, "zero_hpz_partition_size": 4)"), 0);
}

TEST(ParallelKeysTest, ReadsWhatCrossesTheWireAsCodes) {
  using kernels::QuantFormat;
  const auto zero_of = [](const std::string& keys, const std::string& others = "") {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )",
                                    others, R"("zero_optimization": {)", keys, "}}"),
                       8)
        .value()
        .zero;
  };
  const zero::ZeroOptions none = zero_of(R"("stage": 3)");
  EXPECT_EQ(none.quantized_weights, std::nullopt);
  EXPECT_EQ(none.quantized_frozen_weights, std::nullopt);
  EXPECT_EQ(none.quantized_gradients, std::nullopt);
  const char* const all = R"("zero_quantized_weights": true, "zero_quantized_gradients": true,
                             "zero_quantized_nontrainable_weights": true)";
  const auto staged = [&](int stage) { return absl::StrCat("\"stage\": ", stage, ", ", all); };
  for (int stage = 0; stage < zero::kStages; ++stage) {
    const zero::ZeroOptions zero = zero_of(staged(stage));
    EXPECT_EQ(zero.quantized_gradients, QuantFormat::kInt4);
    EXPECT_EQ(zero.quantized_weights.has_value(), stage > 0);
    EXPECT_EQ(zero.quantized_frozen_weights.has_value(), stage == 3);
    EXPECT_EQ(zero.node_ranks, 0);
  }
  // The flags say the same.
  const auto by_flags = [](int stage) {
    return ParseConfig(absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                                        "zero_optimization": {"stage": )",
                                    stage, "}}"),
                       8, "", {}, {.quantized_weights = true, .quantized_gradients = true})
        .value();
  };
  EXPECT_EQ(by_flags(1).zero.quantized_weights, QuantFormat::kInt8);
  EXPECT_EQ(by_flags(0).zero.quantized_weights, std::nullopt);
  EXPECT_EQ(by_flags(0).zero.quantized_gradients, QuantFormat::kInt4);
  // With error feedback, where its key is an object.
  const auto loco_of = [&](const std::string& key) {
    return zero_of(absl::StrCat("\"zero_quantized_gradients\": true", key)).loco;
  };
  EXPECT_FALSE(loco_of("").has_value());
  EXPECT_FALSE(loco_of(R"(, "zeropp_loco_param": null)").has_value());
  EXPECT_EQ(loco_of(R"(, "zeropp_loco_param": {})").value().err_beta, 0.8);
  EXPECT_EQ(loco_of(R"(, "zeropp_loco_param": {})").value().reset_steps, 1024);
  const auto loco = loco_of(R"(, "zeropp_loco_param": {"err_beta": 0.5, "reset_T": 7})").value();
  EXPECT_EQ(loco.err_beta, 0.5);
  EXPECT_EQ(loco.reset_steps, 7);
  EXPECT_FALSE(zero_of(R"("stage": 1, "zeropp_loco_param": {})").loco.has_value());
  EXPECT_TRUE(ParseConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}})", 8, "", {},
                          {.quantized_gradients = true, .loco = true})
                  .value()
                  .zero.loco.has_value());
  const auto nodes_of = [&](const std::string& others) {
    return zero_of(staged(3), others).node_ranks;
  };
  EXPECT_EQ(nodes_of(R"("brigade": {"ranks_per_node": 4}, )"), 4);
  EXPECT_EQ(nodes_of(R"("brigade": {"ranks_per_node": 8}, )"), 0);
  EXPECT_EQ(nodes_of(R"("brigade": {"ranks_per_node": 2, "shard_ranks": 4}, )"), 2);
  EXPECT_EQ(nodes_of(R"("brigade": {"ranks_per_node": 2, "shard_ranks": 2}, )"), 0);
  EXPECT_EQ(
      nodes_of(R"("brigade": {"ranks_per_node": 2}, "tensor_parallel": {"autotp_size": 2}, )"), 0);
}

// A machine's file says as well which ranks are on one node.
TEST(ParallelKeysTest, TakesTheNodesOfCodesAndSignsFromTheTopology) {
  using ::testing::AllOf;
  using ::testing::EndsWith;
  using ::testing::StartsWith;
  const std::string path = absl::StrCat(::testing::TempDir(), "/nodes.json");
  const auto with = [&path](const char* nodes, const char* keys, const char* brigade = "") {
    std::ofstream(path) << R"({"inside": {"latency_us": 1, "gigabytes_per_s": 2},
        "between": {"latency_us": 3, "gigabytes_per_s": 4}, "ranks_of_node": )"
                        << nodes << "}";
    return ParseConfig(
               absl::StrCat(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, )", keys,
                            R"("brigade": {"topology": ")", path, "\"", brigade, "}}"),
               8)
        .value();
  };
  constexpr char kCodes[] = R"("zero_optimization": {"stage": 2,
                                                     "zero_quantized_gradients": true}, )";
  constexpr char kSigns[] = R"(, "gradient_compression": "one_bit")";
  for (const char* const algorithm : {"", R"(, "algorithm": "direct")"}) {
    const TrainConfig codes = with("[4, 4]", kCodes, algorithm);
    EXPECT_EQ(codes.zero.node_ranks, 4);
    EXPECT_THAT(codes.without_effect, ::testing::ElementsAre());
  }
  EXPECT_EQ(with("[2, 2, 2, 2]", "", kSigns).zero.node_ranks, 2);
  EXPECT_EQ(with("[4, 4]", kCodes, R"(, "ranks_per_node": 2)").zero.node_ranks, 2);
  // One hop is all there is to do; and where nothing is sent in fewer bytes.
  for (const char* const nodes : {"[8]", "[1, 1, 1, 1, 1, 1, 1, 1]"}) {
    const TrainConfig one = with(nodes, kCodes);
    EXPECT_EQ(one.zero.node_ranks, 0) << nodes;
    EXPECT_THAT(one.without_effect, ::testing::ElementsAre()) << nodes;
  }
  EXPECT_EQ(with("[4, 4]", kCodes, R"(, "shard_ranks": 4)").zero.node_ranks, 0);
  EXPECT_EQ(with("[4, 4]", "").zero.node_ranks, 0);
  // It says why, where there might be two.
  const auto why = [](const TrainConfig& config) {
    EXPECT_EQ(config.zero.node_ranks, 0);
    return config.without_effect.empty() ? "" : config.without_effect.back();
  };
  constexpr char kHop[] = "a string: codes of gradients, and signs, go in one hop: two need ";
  EXPECT_THAT(why(with("[4, 2, 2]", kCodes)),
              AllOf(StartsWith("brigade.topology is \"/"),
                    EndsWith(absl::StrCat(kHop, "nodes of one size, and they have 2 to 4 ranks"))));
  EXPECT_THAT(why(with("[5, 3]", "", kSigns)),
              EndsWith(absl::StrCat(kHop, "nodes of one size, and they have 3 to 5 ranks")));
  EXPECT_THAT(why(with("[4, 4]", R"("tensor_parallel": {"autotp_size": 2}, )", kSigns)),
              EndsWith(absl::StrCat(kHop, "ranks with the whole model")));
  EXPECT_EQ(why(with("[4, 4]", kCodes, R"(, "ranks_per_node": 3)")),
            "brigade.ranks_per_node is 3: codes of gradients, and signs, go in one hop: two need "
            "nodes of one size, and they have 2 to 3 ranks");
}

// Ranks, the batch and the pipeline of a config with these keys, for 8 ranks.
absl::StatusOr<TrainConfig> OfPipeline(const std::string& keys,
                                       const ModelParallelism& flags = {}) {
  return ParseConfig(absl::StrCat(R"({"train_micro_batch_size_per_gpu": 2,
                                      "gradient_accumulation_steps": 8,
                                      "optimizer": {"type": "Adam"})",
                                  keys, "}"),
                     8, ".", flags);
}

TEST(ParallelKeysTest, WithoutAPipelineThereIsOneStage) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig config, OfPipeline(""));
  EXPECT_EQ(config.grid, (parallel::GridShape{.data = 8}));
  EXPECT_EQ(config.pipeline_shape(), (parallel::PipelineShape{.micro_batches = 8}));
  EXPECT_EQ(config.zero.model_ranks, 1);
  EXPECT_TRUE(config.zero.tied_apart);
  for (const char* const keys : {R"(, "pipeline": {})", R"(, "pipeline": {"stages": "auto"})",
                                 R"(, "pipeline": {"stages": 1, "seed_layers": true})",
                                 R"(, "pipeline": {"use_reentrant": false})"}) {
    ASSERT_OK_AND_ASSIGN(const TrainConfig same, OfPipeline(keys));
    EXPECT_EQ(same.grid, config.grid) << keys;
  }
}

TEST(ParallelKeysTest, ReadsThePipeline) {
  using By = parallel::PartitionChoice::By;
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig plain,
      OfPipeline(
          R"(, "pipeline": {"stages": 4, "partition": "parameters", "use_reentrant": true})"));
  EXPECT_EQ(plain.grid, (parallel::GridShape{.data = 2, .pipeline = 4}));
  EXPECT_EQ(plain.pipeline_shape(), (parallel::PipelineShape{.stages = 4, .micro_batches = 8}));
  EXPECT_EQ(plain.partition, parallel::PartitionChoice{});
  EXPECT_EQ(plain.zero.model_ranks, 4);
  EXPECT_TRUE(plain.zero.tied_apart);
  // The ranks that are left share the batch.
  EXPECT_EQ(plain.batch, (zero::BatchSizes{32, 2, 8}));
  ASSERT_OK_AND_ASSIGN(const TrainConfig grid,
                       OfPipeline(R"(, "pipeline": {"stages": 2, "pipe_partitioned": true,
                                                    "grad_partitioned": true},
                                     "tensor_parallel": {"autotp_size": 2},
                                     "sequence_parallel_size": 2,
                                     "brigade": {"sequence_parallel": true,
                                                 "schedule": "interleaved:3", "partition": "0,3,6",
                                                 "tied_gradients": "apart"},
                                     "zero_optimization": {"stage": 3})"));
  EXPECT_EQ(grid.grid, (parallel::GridShape{.tensor = 2, .context = 2, .data = 1, .pipeline = 2}));
  EXPECT_EQ(grid.schedule, (parallel::ScheduleChoice{parallel::ScheduleKind::kInterleaved, 3}));
  EXPECT_EQ(grid.partition, (parallel::PartitionChoice{By::kBoundaries, {0, 3, 6}}));
  EXPECT_EQ(grid.zero.model_ranks, 4);
  EXPECT_EQ(grid.zero.stage, 3);
  ASSERT_OK_AND_ASSIGN(const TrainConfig together,
                       OfPipeline(R"(, "brigade": {"tied_gradients": "together"})"));
  EXPECT_FALSE(together.zero.tied_apart);
}

TEST(ParallelKeysTest, ReadsEveryScheduleOfAPipelineAndPartition) {
  for (const char* const name :
       {"gpipe", "1f1b", "interleaved:2", "interleaved:8", "zb-h1", "zb-v"}) {
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        OfPipeline(absl::StrCat(R"(, "pipeline": {"stages": 2}, "brigade": {"schedule": ")", name,
                                "\"}")));
    EXPECT_EQ(parallel::ToString(config.schedule), name);
  }
  for (const char* const name : {"parameters", "flops", "time", "0,1,6"}) {
    ASSERT_OK_AND_ASSIGN(
        const TrainConfig config,
        OfPipeline(absl::StrCat(R"(, "pipeline": {"stages": 2}, "brigade": {"partition": ")", name,
                                "\"}")));
    EXPECT_EQ(parallel::ToString(config.partition), name);
  }
}

TEST(ParallelKeysTest, FlagsOfThePipelineComeFirst) {
  const std::string keys =
      R"(, "pipeline": {"stages": 2, "partition": "parameters"}, "brigade": {"schedule": "gpipe"})";
  ASSERT_OK_AND_ASSIGN(const TrainConfig config,
                       OfPipeline(keys, {.pipeline = 8,
                                         .schedule = parallel::ParseSchedule("zb-h1").value(),
                                         .partition = parallel::ParsePartition("time").value()}));
  EXPECT_EQ(config.grid, (parallel::GridShape{.pipeline = 8}));
  EXPECT_EQ(parallel::ToString(config.schedule), "zb-h1");
  EXPECT_EQ(parallel::ToString(config.partition), "time");
  // What the file says has an effect with the flag's stages.
  ASSERT_OK_AND_ASSIGN(const TrainConfig flagged,
                       OfPipeline(R"(, "brigade": {"schedule": "gpipe"})", {.pipeline = 4}));
  EXPECT_EQ(parallel::ToString(flagged.schedule), "gpipe");
  EXPECT_EQ(flagged.grid, (parallel::GridShape{.data = 2, .pipeline = 4}));
}

TEST(ParallelKeysTest, ReadsEveryAlgorithmAndReduction) {
  using collectives::Algorithm;
  using collectives::Reduction;
  const auto read = [](Algorithm algorithm, Reduction reduction) {
    return With(
        absl::StrCat(R"(, "brigade": {"algorithm": ")", std::string(collectives::Name(algorithm)),
                     R"(", "reduction": ")", std::string(collectives::Name(reduction)), "\"",
                     algorithm == Algorithm::kHierarchical ? R"(, "ranks_per_node": 2)" : "", "}"));
  };
  for (const Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kDirect, Algorithm::kRing, Algorithm::kBidirectionalRing,
        Algorithm::kHalvingDoubling, Algorithm::kHierarchical, Algorithm::kDoubleTree,
        Algorithm::kParameterServer, Algorithm::kNative}) {
    for (const Reduction reduction :
         {Reduction::kRoundedOnce, Reduction::kFp32Partials, Reduction::kRoundedPerHop}) {
      if (!collectives::Exists(reduction, algorithm)) continue;
      ASSERT_OK_AND_ASSIGN(const TrainConfig config, read(algorithm, reduction));
      EXPECT_EQ(config.zero.algorithm, algorithm);
      EXPECT_EQ(config.zero.reduction, reduction);
    }
  }
}

TEST(ParallelKeysTest, ReadsTheTopology) {
  ASSERT_OK_AND_ASSIGN(const TrainConfig nodes,
                       With(R"(, "brigade": {"algorithm": "double_tree", "reduction":
                               "fp32_partials", "ranks_per_node": 3})"));
  EXPECT_EQ(nodes.communicator.topology->ranks_of_node, (std::vector<int>{3, 1}));
  const std::string h100 =
      R"(, "brigade": {"topology": "collectives/tuning/topologies/hgx_h100.json")";
  ASSERT_OK_AND_ASSIGN(const TrainConfig machine,
                       With(absl::StrCat(h100, R"(, "ranks_per_node": 2})")));
  EXPECT_EQ(machine.communicator.topology->ranks_of_node, (std::vector<int>{2, 2}));
  EXPECT_EQ(machine.communicator.topology->between.ports, 8);
  // The nodes of the machine itself.
  ASSERT_OK_AND_ASSIGN(
      const TrainConfig two_nodes,
      ParseConfig(
          absl::StrCat(R"({"train_batch_size": 16, "optimizer": {"type": "Adam"})", h100, "}}"),
          16));
  EXPECT_EQ(two_nodes.communicator.topology->ranks_of_node, (std::vector<int>{8, 8}));

  // Paths begin at the config's folder.
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/machine.json") << R"({"inside": {"latency_us": 1, "gigabytes_per_s": 2},
      "between": {"latency_us": 3, "gigabytes_per_s": 4}, "ranks_of_node": [1, 2]})";
  std::ofstream(folder + "/config.json") << R"({"train_batch_size": 3, "optimizer": {"type": "SGD"},
      "brigade": {"topology": "machine.json"}})";
  ASSERT_OK_AND_ASSIGN(const TrainConfig beside, ReadConfig(folder + "/config.json", 3));
  EXPECT_EQ(beside.communicator.topology->ranks_of_node, (std::vector<int>{1, 2}));
  EXPECT_EQ(beside.communicator.topology->inside.bytes_per_s, 2e9);
}

}  // namespace
}  // namespace brigade::train
