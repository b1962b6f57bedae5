#include "brigade/examples/gpt/unit_flops.h"

#include <cstdint>
#include <vector>

#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/policy.h"
#include "brigade/recompute/schedule.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using profile::Flops;
using profile::Pass;

constexpr int64_t kVocabulary = 256;

// The multiplications and additions of the model's definition, counted one by one, as a program
// without any library would make them.
struct Counted {
  double products = 0;
  double attention = 0;
  // Scores that are made a second time.
  double scores = 0;
};

// y = x W^T.
double CountProduct(int64_t rows, int64_t inputs, int64_t outputs) {
  double count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t output = 0; output < outputs; ++output) {
      for (int64_t input = 0; input < inputs; ++input) count += 2;
    }
  }
  return count;
}

// dx = dy W, dW = dy^T x.
double CountProductGradients(int64_t rows, int64_t inputs, int64_t outputs) {
  double count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t input = 0; input < inputs; ++input) {
      for (int64_t output = 0; output < outputs; ++output) count += 2;
    }
  }
  for (int64_t output = 0; output < outputs; ++output) {
    for (int64_t input = 0; input < inputs; ++input) {
      for (int64_t row = 0; row < rows; ++row) count += 2;
    }
  }
  return count;
}

// Each position sees itself and those before it.
void CountAttention(int64_t texts, int64_t context, int64_t width, Counted& forward,
                    Counted& backward) {
  for (int64_t text = 0; text < texts; ++text) {
    for (int64_t query = 0; query < context; ++query) {
      for (int64_t key = 0; key <= query; ++key) {
        for (int64_t column = 0; column < width; ++column) {
          forward.attention += 2;   // score += q k
          forward.attention += 2;   // out += probability v
          backward.scores += 2;     // score again
          backward.attention += 2;  // dv += probability dout
          backward.attention += 2;  // dprobability += dout v
          backward.attention += 2;  // dq += dscore k
          backward.attention += 2;  // dk += dscore q
        }
      }
    }
  }
}

PartPlan PlanOfPolicy(const PassShape& shape, const recompute::Policy& policy) {
  return PlanPart(shape, CountOperations(shape), ModelPart(shape.model), {}, policy).value();
}

const Flops& Of(const profile::UnitSize& unit, Pass pass) {
  return unit.flops[static_cast<size_t>(pass)];
}

constexpr PassShape kShape = {.model = {.layers = 2, .heads = 2, .width = 8, .context = 6},
                              .batch = 3};

TEST(UnitFlopsTest, FormulasAreWhatLoopsCount) {
  const auto units = UnitsOfStep(kShape, PlanOfPolicy(kShape, {}), /*micro_batches=*/5);
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(Of(units[0], Pass::kForward).all(), 0);
  EXPECT_EQ(Of(units[0], Pass::kBackward).all(), 0);
  const int64_t rows = 3 * 6, width = 8;
  Counted forward, backward;
  for (const auto& [inputs, outputs] : {std::pair<int64_t, int64_t>{width, 3 * width},
                                        {width, width},
                                        {width, 4 * width},
                                        {4 * width, width}}) {
    forward.products += CountProduct(rows, inputs, outputs);
    backward.products += CountProductGradients(rows, inputs, outputs);
  }
  CountAttention(3, 6, width, forward, backward);
  for (const size_t block : {1, 2}) {
    EXPECT_EQ(Of(units[block], Pass::kForward).products, 5 * forward.products);
    EXPECT_EQ(Of(units[block], Pass::kBackward).products, 5 * backward.products);
    EXPECT_EQ(Of(units[block], Pass::kForward).attention, 5 * forward.attention);
    EXPECT_EQ(Of(units[block], Pass::kBackward).attention, 5 * backward.attention);
    EXPECT_EQ(Of(units[block], Pass::kBackward).scores, 5 * backward.scores);
    EXPECT_EQ(Of(units[block], Pass::kForward).scores, 0);
    EXPECT_EQ(Of(units[block], Pass::kRecompute).all(), 0);
  }
  EXPECT_EQ(Of(units[3], Pass::kForward).products, 5 * CountProduct(rows, width, kVocabulary));
  EXPECT_EQ(Of(units[3], Pass::kBackward).products,
            5 * CountProductGradients(rows, width, kVocabulary));
}

// Sums over units are those of a token's formula, times the tokens.
TEST(UnitFlopsTest, UnitsAreTheWholeModel) {
  const auto units = UnitsOfStep(kShape, PlanOfPolicy(kShape, {}), 1);
  double sum = 0;
  int64_t parameters = 0;
  for (const auto& unit : units) {
    for (const Flops& flops : unit.flops) sum += flops.products + flops.attention;
    parameters += unit.parameters;
  }
  const profile::Training training = TrainingOf(kShape.model, kShape.batch);
  EXPECT_EQ(training.tokens_of_step, 18);
  EXPECT_DOUBLE_EQ(sum, training.tokens_of_step * training.causal_flops_per_token);
  // The head has the tokens once more.
  EXPECT_GE(parameters, training.parameters);
}

TEST(UnitFlopsTest, TheExamplesModelNeeds5701632OperationsForAToken) {
  const profile::Training training = TrainingOf(ModelOptions(), 16);
  EXPECT_EQ(training.flops_per_token, 5'701'632);
  EXPECT_EQ(training.flops_per_token, FlopsPerToken(ModelOptions()));
  EXPECT_EQ(training.parameters, 842'496);
}

TEST(UnitFlopsTest, RanksShareAllOperations) {
  const auto whole = UnitsOfStep(kShape, PlanOfPolicy(kShape, {}), 1);
  PassShape shared = kShape;
  shared.model.tensor_shards = 2;
  shared.tensor_ranks = 2;
  shared.context_ranks = 2;
  shared.context_exchange = train::ContextExchange::kRing;
  shared.model.context = 8;
  PassShape alone = kShape;
  alone.model.context = 8;
  const auto of_rank = UnitsOfStep(shared, PlanOfPolicy(shared, {}), 1);
  const auto of_all = UnitsOfStep(alone, PlanOfPolicy(alone, {}), 1);
  for (size_t unit = 0; unit < of_rank.size(); ++unit) {
    EXPECT_EQ(of_rank[unit].parameters, of_all[unit].parameters);
    for (size_t pass = 0; pass < profile::kPasses; ++pass) {
      EXPECT_EQ(4 * of_rank[unit].flops[pass].products, of_all[unit].flops[pass].products);
      EXPECT_EQ(4 * of_rank[unit].flops[pass].attention, of_all[unit].flops[pass].attention);
    }
  }
}

TEST(UnitFlopsTest, WhatIsMadeAgainIsCounted) {
  // Each block's forward pass once more.
  const auto block =
      UnitsOfStep(kShape, PlanOfPolicy(kShape, {.kind = recompute::Policy::Kind::kBlock}), 1);
  for (const size_t unit : {1, 2}) {
    EXPECT_EQ(Of(block[unit], Pass::kRecompute).products, Of(block[unit], Pass::kForward).products);
    EXPECT_EQ(Of(block[unit], Pass::kRecompute).attention,
              Of(block[unit], Pass::kForward).attention);
  }
  EXPECT_EQ(Of(block[3], Pass::kRecompute).all(), 0);
  // Norms and GELU alone.
  const auto selective =
      UnitsOfStep(kShape, PlanOfPolicy(kShape, {.kind = recompute::Policy::Kind::kSelective}), 1);
  EXPECT_EQ(Of(selective[1], Pass::kRecompute).products, 0);
  EXPECT_EQ(Of(selective[1], Pass::kRecompute).norms, Of(selective[1], Pass::kForward).norms);
}

TEST(UnitFlopsTest, AStageOfAPipelineHasItsUnitsAlone) {
  const ModelPart part(kShape.model, {{0, 2}});
  const PartPlan plan =
      PlanPart(kShape, CountOperations(kShape), part, {.activations = 2}, {}).value();
  const auto units = UnitsOfStep(kShape, plan, 1);
  ASSERT_EQ(units.size(), 4u);
  EXPECT_GT(Of(units[1], Pass::kForward).products, 0);
  EXPECT_EQ(Of(units[2], Pass::kForward).all(), 0);
  EXPECT_EQ(units[3].parameters, 0);
}

}  // namespace
}  // namespace brigade::gpt
