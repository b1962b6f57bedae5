// What "auto" stands for in keys of fewer bytes: codes where the cost model says that a step's
// exchanges are then shorter, and never what the other options refuse.

#include "brigade/train/codec_choice.h"

#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using collectives::Topology;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr char kHead[] = R"("bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, )";

// Links of so many bytes a second, without latency, between nodes; inside them of `inside`.
Topology Links(std::vector<int> ranks_of_node, double link, double memory, double inside = 1e15) {
  Topology topology;
  topology.ranks_of_node = std::move(ranks_of_node);
  topology.between = {0, link, topology.ranks_of_node.front()};
  topology.inside = {0, topology.nodes() > 1 ? inside : link, topology.ranks_of_node.front()};
  topology.memory_bytes_per_s = memory;
  return topology;
}

// A config of so many ranks; `sharers`: of these, the first ones.
train::ChosenCodecs Choose(absl::string_view keys, const Topology& machine, int sharers,
                           train::TrainConfig* taken = nullptr) {
  const std::string json = absl::StrCat("{", kHead, keys, "}");
  absl::StatusOr<train::TrainConfig> config = train::ParseConfig(json, machine.ranks());
  EXPECT_OK(config) << json;
  EXPECT_TRUE(config->open.any());
  std::vector<int> ranks(static_cast<size_t>(sharers));
  std::iota(ranks.begin(), ranks.end(), 0);
  const ModelOptions model = {.layers = 2, .heads = 4, .width = 128, .context = 32};
  const absl::StatusOr<zero::Plan> plan = zero::Plan::Create(
      SpecOf(model),
      {sharers, config->zero.dtype, config->zero.bucket_elements, config->zero.tied_apart});
  EXPECT_OK(plan);
  absl::StatusOr<train::ChosenCodecs> chosen = train::ChooseCodecs(*config, machine, ranks, *plan);
  EXPECT_OK(chosen);
  if (taken != nullptr) {
    train::TakeCodecs(*chosen, *config);
    *taken = *config;
  }
  return *chosen;
}

constexpr char kStage3[] = R"("zero_optimization": {"stage": 3, "zero_quantized_weights": "auto",
                               "zero_quantized_gradients": "auto"})";

TEST(CodecChoiceTest, SlowLinksTakeCodesAndSlowMemoriesDoNot) {
  train::TrainConfig taken;
  const train::ChosenCodecs slow = Choose(kStage3, Links({1, 1, 1, 1}, 1e6, 1e11), 4, &taken);
  EXPECT_TRUE(slow.weights);
  EXPECT_TRUE(slow.gradients);
  EXPECT_EQ(taken.zero.quantized_weights, kernels::QuantFormat::kInt8);
  EXPECT_EQ(taken.zero.quantized_gradients, kernels::QuantFormat::kInt4);
  EXPECT_EQ(taken.zero.quantized_frozen_weights, std::nullopt);
  EXPECT_EQ(taken.zero.loco, std::nullopt);
  EXPECT_FALSE(taken.open.any());
  EXPECT_THAT(taken.codec_choice,
              ::testing::ContainsRegex("zero_quantized_gradients is \"auto\": int4. In a step "
                                       "these exchanges take .* as int4 and .* as they are"));

  const train::ChosenCodecs fast = Choose(kStage3, Links({1, 1, 1, 1}, 1e11, 1e9), 4, &taken);
  EXPECT_FALSE(fast.weights);
  EXPECT_FALSE(fast.gradients);
  EXPECT_EQ(taken.zero.quantized_weights, std::nullopt);
  EXPECT_EQ(taken.zero.quantized_gradients, std::nullopt);
  EXPECT_THAT(fast.text, HasSubstr("zero_quantized_weights is \"auto\": none. In a step"));
}

// Of n elements of 16 bits on 4 ranks, with links of L and memories of M bytes a second, a
// reduce-scatter takes 3/4 * 2 n / L; int4 codes 3/4 * (1/2 + 1/64) n / L and (2 + 33/32 + 1/2) n /
// M; errors move 4 * (1 + 1/64) n more. So codes pay from M / L = 3.53125 / 1.11328 = 3.172 on, and
// with errors from 6.821 on.
TEST(CodecChoiceTest, ErrorsOfCodesCount) {
  const auto chooses = [](absl::string_view loco, double ratio) {
    const std::string keys = absl::StrCat(
        R"("zero_optimization": {"stage": 2, "zero_quantized_gradients": "auto")", loco, "}");
    return Choose(keys, Links({1, 1, 1, 1}, 1e9, ratio * 1e9), 4).gradients;
  };
  constexpr char kLoco[] = R"(, "zeropp_loco_param": {})";
  EXPECT_FALSE(chooses("", 3.0));
  EXPECT_TRUE(chooses("", 3.4));
  EXPECT_FALSE(chooses(kLoco, 6.5));
  EXPECT_TRUE(chooses(kLoco, 7.2));
}

TEST(CodecChoiceTest, SignsInStages0To2WhereTheyAreFaster) {
  const Topology slow = Links({1, 1, 1, 1}, 1e6, 1e11);
  constexpr char kBoth[] = R"("zero_optimization": {"stage": 1, "zero_quantized_gradients": "auto"},
                              "brigade": {"gradient_compression": "auto",
                                          "gradient_compression_start_step": 7})";
  train::TrainConfig taken;
  const train::ChosenCodecs both = Choose(kBoth, slow, 4, &taken);
  EXPECT_TRUE(both.signs);
  EXPECT_FALSE(both.gradients);
  ASSERT_TRUE(taken.zero.gradient_compression.has_value());
  EXPECT_EQ(taken.zero.gradient_compression->method, zero::GradientCompression::kOneBit);
  EXPECT_EQ(taken.zero.gradient_compression->start_step, 7);
  EXPECT_OK(zero::Validate(taken.zero));

  constexpr char kSigns[] = R"("brigade": {"gradient_compression": "auto"})";
  EXPECT_TRUE(Choose(kSigns, slow, 4).signs);
  EXPECT_FALSE(Choose(kSigns, Links({4}, 1e9, 1e9), 4).signs);
}

TEST(CodecChoiceTest, WhatOtherOptionsRefuseIsNotChosenAndSaidWhy) {
  const Topology slow = Links({1, 1, 1, 1}, 1e6, 1e11);
  const train::ChosenCodecs in_stage_3 = Choose(
      R"("zero_optimization": {"stage": 3}, "brigade": {"gradient_compression": "auto"})", slow, 4);
  EXPECT_FALSE(in_stage_3.signs);
  EXPECT_THAT(in_stage_3.text, HasSubstr("none, since one_bit cannot be: "));
  EXPECT_THAT(in_stage_3.text, HasSubstr("stage 3 has no memory for whole gradients"));
  const train::ChosenCodecs of_replicas =
      Choose(R"("brigade": {"gradient_compression": "auto", "replicas": 2})", slow, 2);
  EXPECT_THAT(of_replicas.text, HasSubstr("cannot be: replicas exchange weights"));
  const train::ChosenCodecs in_stage_0 =
      Choose(R"("zero_optimization": {"stage": 0, "zero_quantized_weights": "auto",
                                      "zero_quantized_nontrainable_weights": "auto"})",
             slow, 4);
  EXPECT_FALSE(in_stage_0.weights);
  EXPECT_FALSE(in_stage_0.frozen_weights);
  EXPECT_THAT(in_stage_0.text, HasSubstr("cannot be: stage 0 gathers none of them"));
  // Gradients that are codes already.
  const train::ChosenCodecs beside_codes =
      Choose(R"("zero_optimization": {"stage": 1, "zero_quantized_gradients": true},
                "brigade": {"gradient_compression": "auto"})",
             slow, 4);
  EXPECT_FALSE(beside_codes.signs);
}

// Groups that share a state inside a fast node send nothing over the slow link but sums between
// groups, which are no codes; all four over both nodes go in two hops.
TEST(CodecChoiceTest, GoesByTheRanksThatShareAState) {
  const Topology nodes = Links({2, 2}, 1e6, 1e10);
  constexpr char kGroups[] = R"("zero_optimization": {"stage": 3, "mics_shard_size": 2,
      "zero_quantized_weights": "auto", "zero_quantized_gradients": "auto"})";
  const train::ChosenCodecs groups = Choose(kGroups, nodes, 2);
  EXPECT_FALSE(groups.weights);
  EXPECT_FALSE(groups.gradients);
  train::TrainConfig taken;
  const train::ChosenCodecs all = Choose(kStage3, nodes, 4, &taken);
  EXPECT_TRUE(all.weights);
  EXPECT_TRUE(all.gradients);
  EXPECT_EQ(taken.zero.node_ranks, 2);
}

// The model has no halving and doubling of three ranks; the engines have.
TEST(CodecChoiceTest, AnAlgorithmThatTheModelLacksIsNoError) {
  const train::ChosenCodecs chosen = Choose(
      R"("zero_optimization": {"stage": 2, "zero_quantized_gradients": "auto"},
         "brigade": {"algorithm": "halving_doubling", "reduction": "rounded_per_hop"})",
      Links({1, 1, 1}, 1e6, 1e11), 3);
  EXPECT_TRUE(chosen.gradients);
}

TEST(CodecChoiceTest, AutoIsReadAndFiguresNeedAMemory) {
  const auto parse = [](absl::string_view keys, const train::StepFlags& step = {}) {
    return train::ParseConfig(absl::StrCat("{", kHead, keys, "}"), 16, ".", {}, step);
  };
  ASSERT_OK_AND_ASSIGN(const train::TrainConfig open, parse(kStage3));
  EXPECT_TRUE(open.open.weights);
  EXPECT_TRUE(open.open.gradients);
  EXPECT_FALSE(open.open.compression);
  EXPECT_TRUE(open.open.measures);
  // Flags go before the file.
  ASSERT_OK_AND_ASSIGN(const train::TrainConfig flagged,
                       parse(R"("brigade": {"gradient_compression": "top_k"})",
                             {.chooses_gradient_compression = true}));
  EXPECT_TRUE(flagged.open.compression);
  EXPECT_FALSE(flagged.zero.gradient_compression.has_value());
  ASSERT_OK_AND_ASSIGN(const train::TrainConfig given, parse(kStage3, {.quantized_weights = true}));
  EXPECT_FALSE(given.open.weights);
  EXPECT_EQ(given.zero.quantized_weights, kernels::QuantFormat::kInt8);

  ASSERT_OK_AND_ASSIGN(const train::TrainConfig figures,
                       parse(absl::StrCat(kStage3, R"(, "brigade": {"ranks_per_node": 8,
          "topology": "collectives/tuning/topologies/hgx_h100.json"})")));
  EXPECT_FALSE(figures.open.measures);
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::string path = absl::StrCat(::testing::TempDir(), "/no_memory.json");
  std::ofstream(path) << R"({"inside": {"latency_us": 3, "gigabytes_per_s": 300},
                             "between": {"latency_us": 10, "gigabytes_per_s": 50}})";
  EXPECT_THAT(parse(absl::StrCat(kStage3, R"(, "brigade": {"ranks_per_node": 8, "topology": ")",
                                 path, R"("})")),
              StatusIs(kInvalid, HasSubstr("it has no memory_gigabytes_per_s, by which \"auto\"")));
  EXPECT_THAT(parse(R"("zero_optimization": {"zero_quantized_weights": "sometimes"})"),
              StatusIs(kInvalid, HasSubstr("true or false or \"auto\"")));
}

}  // namespace
}  // namespace brigade::gpt
