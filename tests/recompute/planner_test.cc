#include "brigade/recompute/planner.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "brigade/tests/recompute/chains.h"
#include "brigade/tests/recompute/simulator.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::recompute {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// The plan's schedule runs, in the plan's memory and time.
Plan Checked(const Chain& chain, absl::StatusOr<Plan> plan) {
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status();
    return {};
  }
  const absl::StatusOr<Simulation> simulation = Simulate(chain, plan->operations);
  EXPECT_OK(simulation);
  if (simulation.ok()) {
    EXPECT_EQ(simulation->peak_bytes, plan->peak_bytes) << Text(plan->operations);
    EXPECT_EQ(simulation->time, plan->time) << Text(plan->operations);
  }
  return *std::move(plan);
}

// Budgets (in units, up to the next row's) and the least time, infinite below the first row.
struct Row {
  int64_t budget;
  double time;
};

void ExpectTimes(const Chain& chain, const std::vector<Row>& rows, int64_t last) {
  ASSERT_OK_AND_ASSIGN(const int64_t least, LeastBudget(chain));
  EXPECT_EQ(least, rows.front().budget * kUnit);
  EXPECT_THAT(PlanBudget(chain, least - 1), StatusIs(kInvalid, HasSubstr("below the least")));
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t end = r + 1 < rows.size() ? rows[r + 1].budget : last + 1;
    for (int64_t budget = rows[r].budget; budget < end; ++budget) {
      // Bytes that are no whole unit are of no use.
      for (const int64_t bytes : {budget * kUnit, budget * kUnit + kUnit - 1}) {
        const Plan plan = Checked(chain, PlanBudget(chain, bytes));
        EXPECT_EQ(plan.time, rows[r].time) << budget;
        EXPECT_LE(plan.peak_bytes, bytes);
      }
    }
  }
}

// The rows of PlanBudget's tests are from exhaustive searches made elsewhere.
TEST(PlannerTest, KnownTimesOfFourEqualStages) {
  ExpectTimes(EqualChain(4, UnitStage(1, 1, 1, {{4, 2}})),
              {{6, 18}, {7, 16}, {8, 15}, {10, 14}, {14, 13}, {17, 12}}, 20);
}

TEST(PlannerTest, KnownTimesOfSixEqualStages) {
  ExpectTimes(
      EqualChain(6, UnitStage(1, 1, 1, {{4, 2}})),
      {{6, 33}, {7, 26}, {8, 25}, {9, 23}, {11, 22}, {14, 21}, {18, 20}, {22, 19}, {25, 18}}, 30);
}

TEST(PlannerTest, KnownTimesOfDifferentStages) {
  ExpectTimes({.stages = {UnitStage(1, 4, 4, {{5, 2}}), UnitStage(3, 1, 1, {{8, 6}}),
                          UnitStage(1, 3, 3, {{4, 2}}), UnitStage(5, 1, 1, {{6, 10}})}},
              {{13, 35}, {14, 34}, {17, 33}, {22, 32}, {23, 31}, {24, 30}}, 30);
}

// A block of a transformer: everything, all but the pointwise layers' outputs, all but the
// probabilities.
Chain Transformer() {
  return EqualChain(4, UnitStage(100, 1, 1, {{20, 200}, {14, 203}, {10, 213}}));
}

TEST(PlannerTest, KnownTimesWithSeveralOptions) {
  const std::vector<Row> rows = {{12, 1852}, {13, 1652}, {14, 1552}, {18, 1512}, {22, 1452},
                                 {32, 1339}, {41, 1252}, {57, 1212}, {81, 1200}};
  const Chain chain = Transformer();
  ASSERT_OK_AND_ASSIGN(const int64_t least, LeastBudget(chain));
  EXPECT_EQ(least, 12 * kUnit);
  for (const Row& row : rows) {
    EXPECT_EQ(Checked(chain, PlanBudget(chain, row.budget * kUnit)).time, row.time) << row.budget;
  }
}

TEST(PlannerTest, KnownTimesOfWholeBlocksAlone) {
  ExpectTimes(EqualChain(4, UnitStage(100, 1, 1, {{20, 200}})),
              {{22, 1800}, {23, 1600}, {24, 1500}, {42, 1400}, {62, 1300}, {81, 1200}}, 90);
}

TEST(PlannerTest, NoneSavesTheFastestOption) {
  const Chain chain = EqualChain(3, UnitStage(1, 1, 1, {{2, 3}, {5, 2}, {4, 2}, {4, 2}}));
  const Plan plan = Checked(chain, PlanNone(chain));
  EXPECT_EQ(Text(plan.operations),
            "save 0 option 2\nsave 1 option 2\nsave 2 option 2\n"
            "backward 2 option 2\nbackward 1 option 2\nbackward 0 option 2");
  EXPECT_EQ(plan.peak_bytes, (3 * 4 + 1) * kUnit);
  EXPECT_EQ(plan.time, 9);
}

TEST(PlannerTest, BlocksKeepTheirInputs) {
  const Chain chain = EqualChain(3, UnitStage(1, 1, 1, {{4, 2}}));
  const Plan plan = Checked(chain, PlanBlocks(chain));
  EXPECT_EQ(Text(plan.operations),
            "keep 0\nkeep 1\nsave 2 option 0\nbackward 2 option 0\ndrop 2\n"
            "save 1 option 0\nbackward 1 option 0\ndrop 1\n"
            "save 0 option 0\nbackward 0 option 0");
  EXPECT_EQ(plan.peak_bytes, (2 + 4 + 1) * kUnit);
  EXPECT_EQ(plan.time, 11);
}

TEST(PlannerTest, SelectiveSavesWhatTheCallerNames) {
  const Chain chain = Transformer();
  const Plan plan = Checked(chain, PlanSelective(chain, {2, 1, 1, 0}));
  EXPECT_EQ(plan.peak_bytes, (10 + 14 + 14 + 20 + 1) * kUnit);
  EXPECT_EQ(plan.time, 400 + 213 + 203 + 203 + 200);
  EXPECT_THAT(PlanSelective(chain, {0, 0, 0}),
              StatusIs(kInvalid, "3 options for a chain of 4 stages"));
  for (const int option : {-1, 3}) {
    EXPECT_THAT(PlanSelective(chain, {0, 0, option, 0}),
                StatusIs(kInvalid, HasSubstr("stage 2 (\"\") has 3 options, not option")));
  }
}

// n / k inputs and k saved sets, n - k steps more; the gradient is counted and the chain's input,
// of the same size, is not.
TEST(PlannerTest, KnownMemoryAndTimeOfSegments) {
  const Chain chain = EqualChain(16, UnitStage(1, 1, 1, {{4, 2}}));
  for (const auto& [length, units] :
       std::vector<std::pair<int, int64_t>>{{1, 20}, {2, 16}, {4, 20}, {8, 34}, {16, 65}}) {
    const Plan plan = Checked(chain, PlanSegments(chain, length));
    EXPECT_EQ(plan.peak_bytes, units * kUnit) << length;
    EXPECT_EQ(plan.time, 48 + 16 - length) << length;
  }
  EXPECT_THAT(PlanSegments(chain, 0),
              StatusIs(kInvalid, "stages_per_segment has to be 1 at least, not 0"));
}

TEST(PlannerTest, TheLastSegmentMayBeShorter) {
  const Chain chain = EqualChain(5, UnitStage(1, 1, 1, {{4, 2}}));
  EXPECT_EQ(Text(Checked(chain, PlanSegments(chain, 3)).operations),
            "forward 0\nforward 1 far\nkeep 2\n"
            "save 3 option 0\nsave 4 option 0\nbackward 4 option 0\nbackward 3 option 0\ndrop 3\n"
            "save 0 option 0\nsave 1 option 0\nsave 2 option 0\n"
            "backward 2 option 0\nbackward 1 option 0\nbackward 0 option 0");
}

TEST(PlannerTest, TransientBytesCountWhereTheyAreNeeded) {
  Stage stage = UnitStage(1, 1, 1, {{4, 2}});
  stage.transient_bytes = 7 * kUnit;
  stage.options[0].forward_transient_bytes = 2 * kUnit;
  stage.options[0].backward_transient_bytes = 3 * kUnit;
  const Chain chain = EqualChain(2, stage);
  // Two saved sets, a gradient and the backward pass.
  EXPECT_EQ(Checked(chain, PlanNone(chain)).peak_bytes, (8 + 1 + 3) * kUnit);
  // An output, a gradient and a forward pass that saves nothing; later less.
  EXPECT_EQ(Checked(chain, PlanBlocks(chain)).peak_bytes, (1 + 1 + 7) * kUnit);
}

TEST(PlannerTest, EqualSchedulesAreChosenByTheStatedOrder) {
  // Times of zero: all schedules are as fast. The first is the one that saves as early as it can,
  // option 0 where that leaves room for the rest.
  const Chain chain = EqualChain(3, UnitStage(0, 1, 1, {{4, 0}, {3, 0}}));
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBudget(chain, 9 * kUnit));
  EXPECT_EQ(Text(plan.operations),
            "save 0 option 0\nkeep 1\nsave 2 option 1\nbackward 2 option 1\ndrop 2\n"
            "save 1 option 0\nbackward 1 option 0\nbackward 0 option 0");
}

TEST(PlannerTest, ABudgetBelowTheLeastNamesBoth) {
  const Chain chain = Transformer();
  EXPECT_THAT(PlanBudget(chain, 3071),
              StatusIs(kInvalid, "a budget of 3071 bytes is below the least, 3072"));
  EXPECT_THAT(PlanBudget(chain, -1), StatusIs(kInvalid, HasSubstr("a budget of -1 bytes")));
}

TEST(PlannerTest, EveryPolicyChecksTheChain) {
  const Chain chain;
  EXPECT_THAT(PlanNone(chain), StatusIs(kInvalid, "a chain has no stages"));
  EXPECT_THAT(PlanBlocks(chain), StatusIs(kInvalid, "a chain has no stages"));
  EXPECT_THAT(PlanSelective(chain, {}), StatusIs(kInvalid, "a chain has no stages"));
  EXPECT_THAT(PlanSegments(chain, 1), StatusIs(kInvalid, "a chain has no stages"));
  EXPECT_THAT(PlanBudget(chain, 1), StatusIs(kInvalid, "a chain has no stages"));
  EXPECT_THAT(LeastBudget(chain), StatusIs(kInvalid, "a chain has no stages"));
}

TEST(PlannerTest, PlansAChainWithoutSizes) {
  const Chain chain = EqualChain(2, {.forward_time = 1, .options = {{.backward_time = 2}}});
  EXPECT_EQ(Checked(chain, PlanBudget(chain, 0)).time, 6);
}

}  // namespace
}  // namespace brigade::recompute
