#include "brigade/recompute/revolve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/recompute/planner.h"
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

Chain Steps(int steps) { return EqualChain(steps, UnitStage(1, 1, 0, {{1, 0}})); }

TEST(RevolveTest, KnownForwardSteps) {
  const struct {
    int steps;
    std::vector<int64_t> counts;
  } rows[] = {{1, {0, 0, 0, 0, 0}},
              {4, {6, 4, 3, 3, 3}},
              {6, {15, 8, 7, 6, 5}},
              {10, {45, 20, 15, 14, 13}},
              {16, {120, 45, 33, 27, 25}},
              {24, {276, 88, 61, 51, 44}},
              {100, {4950, 845, 490, 374, 316}}};
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.counts.size(); ++c) {
      ASSERT_OK_AND_ASSIGN(const int64_t count,
                           RevolveForwardSteps(row.steps, static_cast<int>(c) + 1));
      EXPECT_EQ(count, row.counts[c]) << row.steps << " steps, " << c + 1 << " checkpoints";
    }
  }
}

TEST(RevolveTest, TheFormulaIsTheRecursion) {
  constexpr int kSteps = 60;
  std::vector<std::vector<int64_t>> t(kSteps + 1, std::vector<int64_t>(kSteps + 3));
  for (int l = 1; l <= kSteps; ++l) {
    for (int c = 1; c <= kSteps + 2; ++c) {
      const auto at = [&](int a, int b) -> int64_t& {
        return t[static_cast<size_t>(a)][static_cast<size_t>(b)];
      };
      at(l, c) = c == 1 ? int64_t{l} * (l - 1) / 2 : l == 1 ? 0 : l * l;
      for (int j = 1; c > 1 && j < l; ++j) {
        at(l, c) = std::min(at(l, c), j + at(l - j, c - 1) + at(j, c));
      }
      ASSERT_OK_AND_ASSIGN(const int64_t count, RevolveForwardSteps(l, c));
      EXPECT_EQ(count, at(l, c)) << l << " steps, " << c << " checkpoints";
    }
  }
}

TEST(RevolveTest, ItsScheduleTakesThatManyStepsAndCheckpoints) {
  for (const int steps : {1, 2, 3, 4, 6, 10, 24, 100, kMaxStages}) {
    for (const int checkpoints : {1, 2, 3, 5, 200}) {
      if (steps == kMaxStages && checkpoints == 1) continue;
      ASSERT_OK_AND_ASSIGN(const int64_t count, RevolveForwardSteps(steps, checkpoints));
      ASSERT_OK_AND_ASSIGN(const std::vector<Operation> operations, Revolve(steps, checkpoints));
      ASSERT_OK_AND_ASSIGN(const Simulation simulation, Simulate(Steps(steps), operations));
      EXPECT_EQ(simulation.forwards, count + steps) << steps << " steps, " << checkpoints;
      // The checkpoints, and the input of the step that is recorded.
      EXPECT_LE(simulation.most_kept, checkpoints + 1) << steps << " steps";
    }
  }
}

TEST(RevolveTest, KnownScheduleOfFourStepsAndTwoCheckpoints) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Operation> operations, Revolve(4, 2));
  EXPECT_EQ(Text(operations),
            "keep 0\nforward 1 far\nkeep 2\nsave 3 option 0\nbackward 3 option 0\ndrop 3\n"
            "keep 1\nsave 2 option 0\nbackward 2 option 0\ndrop 2\n"
            "save 1 option 0\nbackward 1 option 0\ndrop 1\n"
            "save 0 option 0\nbackward 0 option 0");
}

// A saved set that fits into the memory once makes a chain of PlanBudget one of Revolve.
TEST(RevolveTest, PlanBudgetFindsTheSameNumbers) {
  for (const int steps : {2, 5, 10, 16}) {
    for (int checkpoints = 1; checkpoints < 5; ++checkpoints) {
      const int saved = checkpoints + 1;
      const Chain chain = EqualChain(steps, UnitStage(1, 1, 0, {{saved, 0}}));
      ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBudget(chain, (saved + checkpoints) * kUnit));
      ASSERT_OK_AND_ASSIGN(const int64_t count, RevolveForwardSteps(steps, checkpoints));
      EXPECT_EQ(plan.time, static_cast<double>(count + steps)) << steps << " " << checkpoints;
    }
  }
}

void ExpectCosts(int checkpoints, TierCosts costs, const std::vector<int>& steps,
                 const std::vector<double>& expected) {
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const DiskRevolveSchedule schedule,
                         DiskRevolve(steps[i], checkpoints, costs));
    EXPECT_EQ(schedule.cost, expected[i]) << steps[i];
    ASSERT_OK_AND_ASSIGN(const Simulation simulation,
                         Simulate(Steps(steps[i]), schedule.operations));
    EXPECT_EQ(simulation.forwards - steps[i] + simulation.writes * costs.write +
                  simulation.reads * costs.read,
              schedule.cost)
        << steps[i];
    EXPECT_LE(simulation.most_kept, checkpoints + 1) << steps[i];
  }
}

TEST(DiskRevolveTest, KnownCosts) {
  ExpectCosts(1, {.write = 1, .read = 1}, {1, 4, 6, 8, 10, 16}, {0, 6, 11, 16, 21, 36});
  ExpectCosts(2, {.write = 1, .read = 1}, {4, 6, 8, 10, 16}, {4, 8, 13, 18, 32});
  ExpectCosts(2, {.write = 2, .read = 2}, {16, 24, 48, 100}, {38, 62, 134, 290});
  ExpectCosts(3, {.write = 2, .read = 2}, {16, 24, 48, 100}, {32, 54, 120, 263});
}

TEST(DiskRevolveTest, WithAFreeTierEveryStepRunsForwardOnce) {
  ExpectCosts(1, {}, {1, 2, 7, 50}, {0, 1, 6, 49});
}

TEST(DiskRevolveTest, WithADearTierItIsRevolve) {
  ExpectCosts(2, {.write = 1e6, .read = 0}, {4, 24}, {4, 88});
  ASSERT_OK_AND_ASSIGN(const DiskRevolveSchedule schedule, DiskRevolve(24, 2, {.write = 1e6}));
  ASSERT_OK_AND_ASSIGN(const std::vector<Operation> operations, Revolve(24, 2));
  EXPECT_EQ(schedule.operations, operations);
}

TEST(DiskRevolveTest, KnownSchedule) {
  ASSERT_OK_AND_ASSIGN(const DiskRevolveSchedule schedule, DiskRevolve(4, 1, {.write = 0.1}));
  EXPECT_EQ(Text(schedule.operations),
            "write 0\nforward 0 far\nwrite 1\nkeep 1\n"
            "keep 2\nsave 3 option 0\nbackward 3 option 0\ndrop 3\n"
            "save 2 option 0\nbackward 2 option 0\ndrop 2\n"
            "read 1\nsave 1 option 0\nbackward 1 option 0\ndrop 1\n"
            "read 0\nsave 0 option 0\nbackward 0 option 0\ndrop 0");
}

TEST(RevolveTest, NamesTheArgumentThatIsWrong) {
  for (const int steps : {0, kMaxStages + 1}) {
    EXPECT_THAT(RevolveForwardSteps(steps, 1), StatusIs(kInvalid, HasSubstr("steps have to be")));
    EXPECT_THAT(Revolve(steps, 1), StatusIs(kInvalid, HasSubstr("steps have to be")));
    EXPECT_THAT(DiskRevolve(steps, 1, {}), StatusIs(kInvalid, HasSubstr("steps have to be")));
  }
  EXPECT_THAT(Revolve(1, 0), StatusIs(kInvalid, "checkpoints have to be 1 at least, not 0"));
  for (const double cost : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(DiskRevolve(1, 1, {.write = cost}), StatusIs(kInvalid, HasSubstr("the costs of")));
    EXPECT_THAT(DiskRevolve(1, 1, {.read = cost}), StatusIs(kInvalid, HasSubstr("the costs of")));
  }
}

}  // namespace
}  // namespace brigade::recompute
