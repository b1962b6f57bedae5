#include "brigade/train/times/pass_times.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/schedule.h"
#include "brigade/tests/examples/gpt/plain_parameters.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/times/traced.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using device::TracedOperation;
using ::testing::ElementsAre;

// Forward, recompute, backward.
std::vector<std::vector<double>> Parts(const train::PassTimes& passes) {
  std::vector<std::vector<double>> parts;
  for (const train::PassSeconds& stage : passes.Stages()) {
    parts.push_back(
        {stage[train::PassPart::kForward], stage.recompute(), stage[train::PassPart::kBackward]});
  }
  return parts;
}

TEST(PassTimesTest, EachMarkBeginsAPart) {
  train::PassTimes passes;
  passes.Add(0,
             {train::Work("gemm", 0, 1), train::Work("forward 0", 1, 1), train::Work("gelu", 1, 3),
              train::Work("forward 2", 3, 3), train::Work("gemm", 3, 7),
              train::Work("end of part", 7, 7), train::Work("gemm", 7, 9)});
  // A part goes on from one call to the next, marks take no time, and each stream is in a part of
  // its own.
  passes.Add(1, {train::Work("gemm", 0, 100)});
  passes.Add(0, {train::Work("backward 2", 9, 9), train::Work("gemm", 9, 10)});
  passes.Add(1, {train::Work("gemm", 100, 200)});
  passes.Add(0, {train::Work("gemm", 10, 14), train::Work("recompute 2", 14, 16),
                 train::Work("gemm", 16, 22), train::Work("backward 2", 22, 22),
                 train::Work("layer_norm", 22, 23)});
  EXPECT_THAT(Parts(passes),
              ElementsAre(ElementsAre(2, 0, 0), ElementsAre(0, 0, 0), ElementsAre(4, 6, 6)));
}

TEST(PassTimesTest, WhatIsMadeAgainHasItsParts) {
  train::PassTimes passes;
  passes.Add(0, {train::Work("recompute 0", 0, 0), train::Work("gemm", 0, 1),
                 train::Work("recompute middle 0", 1, 1), train::Work("gemm", 1, 3),
                 train::Work("recompute pointwise 0", 3, 3), train::Work("gelu", 3, 7),
                 train::Work("recompute qkv 0", 7, 7), train::Work("gemm", 7, 15),
                 train::Work("recompute expanded 0", 15, 15), train::Work("gemm", 15, 31),
                 train::Work("recompute attention 0", 31, 31), train::Work("attention", 31, 63)});
  const std::vector<train::PassSeconds> stages = passes.Stages();
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_THAT(stages[0].parts, ElementsAre(0, 0, 0, 0, 1, 4, 2, 8, 16, 32));
  EXPECT_EQ(stages[0].recompute(), 63);
  EXPECT_EQ(stages[0].once(), 0);
}

TEST(PassTimesTest, HalvesOfABackwardPassAreOne) {
  train::PassTimes passes;
  passes.Add(0, {train::Work("forward 1", 0, 0), train::Work("gemm", 0, 1),
                 train::Work("backward input 1", 1, 1), train::Work("gemm", 1, 3),
                 train::Work("backward weight 0", 3, 3), train::Work("gemm", 3, 7),
                 train::Work("backward weight 1", 7, 7), train::Work("gemm", 7, 15)});
  const std::vector<train::PassSeconds> stages = passes.Stages();
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[1][train::PassPart::kBackwardInput], 2);
  EXPECT_EQ(stages[1][train::PassPart::kBackwardWeight], 8);
  EXPECT_EQ(stages[1].backward(), 10);
  EXPECT_EQ(stages[1].once(), 11);
  EXPECT_EQ(stages[0].once(), 4);
}

TEST(PassTimesTest, WaitsCollectivesAndTheOptimizerAreNoPartOfAPass) {
  train::PassTimes passes;
  passes.Add(0, {train::Work("forward 0", 0, 0),
                 train::Work("all_gather", 0, 2),
                 {TracedOperation::Kind::kWait, "weights", 2 * train::kSecond, 5 * train::kSecond},
                 train::Work("adam", 5, 6),
                 train::Work("gemm", 6, 7)});
  EXPECT_THAT(Parts(passes), ElementsAre(ElementsAre(1, 0, 0)));
}

TEST(PassTimesTest, HalvesOfABackwardPassAndMarksOfPassesStandBesideParts) {
  train::PassTimes passes;
  passes.Add(
      0, {train::Work("pass B7'", 0, 0), train::Work("backward input 0", 0, 0),
          train::Work("gemm", 0, 2), train::Work("end of part", 2, 2), train::Work("pass W3", 2, 2),
          train::Work("backward weight 0", 2, 2), train::Work("gemm", 2, 5),
          train::Work("end of pass", 5, 5), train::Work("gemm", 5, 6)});
  const std::vector<train::PassSeconds> stages = passes.Stages();
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_EQ(stages[0][train::PassPart::kBackwardInput], 2);
  // A pass's end ends no part: MarkEnd does.
  EXPECT_EQ(stages[0][train::PassPart::kBackwardWeight], 4);
  EXPECT_EQ(stages[0].backward(), 6);
  EXPECT_EQ(train::PassOfMark("pass B7'"), "B7'");
  EXPECT_EQ(train::PassOfMark("end of pass"), "");
  EXPECT_EQ(train::PassOfMark("forward 3"), std::nullopt);
}

TEST(PassTimesTest, WhatHasNoMarksHasNoParts) {
  train::PassTimes passes;
  passes.Add(
      0, {train::Work("gemm", 0, 1), train::Work("forward", 1, 2), train::Work("forward x", 2, 3)});
  EXPECT_THAT(Parts(passes), ElementsAre());
}

TEST(PassTimesTest, MarksAreOperationsThatDoNothing) {
  device::Tracer tracer;
  device::ContextOptions options;
  options.tracer = &tracer;
  auto context = device::Context::Create(options).value();
  auto stream = context->CreateStream("compute").value();
  ASSERT_OK(train::MarkPart(train::PassPart::kForward, 0, *stream));
  ASSERT_OK(train::MarkPart(train::PassPart::kBackward, 1023, *stream));
  ASSERT_OK(train::MarkPart(train::PassPart::kBackwardInput, 3, *stream));
  ASSERT_OK(train::MarkPart(train::PassPart::kBackwardWeight, 4, *stream));
  ASSERT_OK(train::MarkPart(train::PassPart::kRecompute, 17, *stream));
  ASSERT_OK(train::MarkPart(train::PassPart::kRecomputePointwise, 1023, *stream));
  ASSERT_OK(train::MarkEnd(*stream));
  ASSERT_OK(train::MarkPass({parallel::ItemKind::kBackwardWeight, 1, 1048575}, *stream));
  ASSERT_OK(train::MarkPassEnd(*stream));
  ASSERT_OK(stream->Synchronize());
  std::vector<std::string> names;
  for (const device::TracedStream& traced : tracer.Take()) {
    for (const TracedOperation& operation : traced.operations) names.emplace_back(operation.name);
  }
  EXPECT_THAT(names, ElementsAre("forward 0", "backward 1023", "backward input 3",
                                 "backward weight 4", "recompute 17", "recompute pointwise 1023",
                                 "end of part", "pass W1048575'", "end of pass"));
}

// The marks with work behind them in the trace of a pass by a plan.
std::vector<std::string> MarksOf(const recompute::Chain& chain, const ModelOptions& model,
                                 const recompute::Plan& plan) {
  device::Tracer tracer;
  device::ContextOptions options;
  options.tracer = &tracer;
  auto context = device::Context::Create(options).value();
  auto stream = context->CreateStream("compute").value();
  auto transformer =
      Transformer::Create({model, 1, precision::DType::kFloat32},
                          PartPlan::Whole(model, recompute::Place(chain, plan).value()), *context)
          .value();
  PlainParameters<float> parameters(model, 3);
  const std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6};
  const nn::Texts texts = {bytes.data(), 1, model.context};
  std::vector<float> losses(5);
  const float seed = 1;
  EXPECT_OK(transformer->Forward({}, texts, losses.data(), {}, parameters, *stream));
  EXPECT_OK(transformer->Backward({}, texts, &seed, {}, parameters, *stream));
  EXPECT_OK(stream->Synchronize());
  std::vector<std::string> marks;
  for (const device::TracedStream& traced : tracer.Take()) {
    std::string mark;
    for (const TracedOperation& operation : traced.operations) {
      const std::string name(operation.name);
      if (name.find("ward ") != std::string::npos || name.find("recompute ") == 0) {
        mark = name;
      } else if (name == "end of part") {
        mark.clear();
      } else if (!mark.empty() && (marks.empty() || marks.back() != mark)) {
        marks.push_back(mark);
      }
    }
  }
  return marks;
}

TEST(PassTimesTest, ATransformerMarksWhatItMakesAgain) {
  const ModelOptions model = {.layers = 1, .heads = 2, .width = 6, .context = 5};
  const recompute::Chain chain = ActivationChain({model, 1, precision::DType::kFloat32});
  EXPECT_THAT(MarksOf(chain, model, recompute::PlanBlocks(chain).value()),
              ElementsAre("forward 0", "forward 1", "forward 2", "backward 2", "recompute 1",
                          "backward 1", "recompute 0", "backward 0"));
  EXPECT_THAT(
      MarksOf(chain, model, recompute::PlanSelective(chain, {0, kSaveAttention, 0}).value()),
      ElementsAre("forward 0", "forward 1", "forward 2", "backward 2", "recompute middle 1",
                  "recompute pointwise 1", "recompute expanded 1", "recompute pointwise 1",
                  "backward 1", "recompute pointwise 1", "recompute qkv 1", "backward 1",
                  "backward 0"));
  EXPECT_THAT(MarksOf(chain, model, recompute::PlanSelective(chain, {0, kSaveMiddle, 0}).value()),
              ElementsAre("forward 0", "forward 1", "forward 2", "backward 2",
                          "recompute pointwise 1", "recompute expanded 1", "recompute pointwise 1",
                          "backward 1", "recompute pointwise 1", "recompute qkv 1",
                          "recompute attention 1", "backward 1", "backward 0"));
}

}  // namespace
}  // namespace brigade::gpt
