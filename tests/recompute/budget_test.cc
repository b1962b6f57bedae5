// PlanBudget on random chains: against an exhaustive search where sizes are whole units, and
// against its promises where they are not.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>

#include "brigade/recompute/planner.h"
#include "brigade/tests/recompute/chains.h"
#include "brigade/tests/recompute/exhaustive.h"
#include "brigade/tests/recompute/simulator.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::recompute {
namespace {

using Random = std::mt19937_64;

int64_t Uniform(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

enum class Gradients { kAtMostTheOutput, kEqual, kAny };

// Times are integers, so that their sums are exact. Sizes are multiples of `unit`.
Chain RandomChain(Random& random, int stages, int options, int64_t most, int64_t unit,
                  Gradients gradients) {
  const auto size = [&](int64_t low, int64_t high) { return Uniform(random, low, high) * unit; };
  Chain chain;
  const int64_t gradient = size(0, most);
  int64_t input_gradient = 0;
  for (int s = 0; s < stages; ++s) {
    Stage stage = {.forward_time = static_cast<double>(Uniform(random, 0, 9)),
                   .output_bytes = size(0, most),
                   .transient_bytes = size(0, most)};
    stage.gradient_bytes = gradients == Gradients::kEqual ? gradient
                           : gradients == Gradients::kAny ? size(0, most)
                                                          : size(0, stage.output_bytes / unit);
    for (int o = 0; o < options; ++o) {
      SaveOption option = {.saved_bytes = stage.output_bytes + size(0, 2 * most),
                           .forward_transient_bytes = size(0, most / 2),
                           .backward_transient_bytes = size(0, most),
                           .backward_time = static_cast<double>(Uniform(random, 0, 20))};
      const int64_t room =
          option.saved_bytes + stage.gradient_bytes + option.backward_transient_bytes;
      option.backward_transient_bytes += std::max<int64_t>(0, input_gradient - room);
      stage.options.push_back(option);
    }
    input_gradient = stage.gradient_bytes;
    chain.stages.push_back(stage);
  }
  return chain;
}

// Compares the least budget, the one that recomputes nothing and `budgets` between them.
void CompareWithSearch(const Chain& chain, int budgets, Gradients gradients) {
  ASSERT_OK_AND_ASSIGN(const int64_t least, LeastBudget(chain));
  ASSERT_OK_AND_ASSIGN(const Plan none, PlanNone(chain));
  const int64_t range = (none.peak_bytes - least) / kUnit;
  const int64_t step = std::max<int64_t>(1, range / (budgets + 1)) * kUnit;
  for (int64_t budget = least; budget <= none.peak_bytes; budget += step) {
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBudget(chain, budget));
    const double best = ExhaustiveTime(chain, budget);
    if (gradients == Gradients::kAny) {
      EXPECT_GE(plan.time, best) << budget;
    } else {
      EXPECT_EQ(plan.time, best) << budget;
    }
    EXPECT_LE(plan.peak_bytes, budget);
    ASSERT_OK_AND_ASSIGN(const Simulation simulation, Simulate(chain, plan.operations));
    EXPECT_EQ(simulation.peak_bytes, plan.peak_bytes);
    EXPECT_EQ(simulation.time, plan.time);
  }
  if (gradients == Gradients::kAny) return;
  EXPECT_FALSE(std::isfinite(ExhaustiveTime(chain, least - kUnit)));
}

TEST(BudgetTest, IsAsFastAsTheBestPersistentSchedule) {
  Random random(1);
  for (int trial = 0; trial < 100; ++trial) {
    const int stages = static_cast<int>(Uniform(random, 1, 5));
    const int options = static_cast<int>(Uniform(random, 1, 3));
    const Gradients gradients = trial % 2 == 0 ? Gradients::kAtMostTheOutput : Gradients::kEqual;
    CompareWithSearch(RandomChain(random, stages, options, Uniform(random, 1, 6), kUnit, gradients),
                      3, gradients);
    if (HasFailure()) FAIL() << "trial " << trial;
  }
}

TEST(BudgetTest, IsAsFastAsTheBestPersistentScheduleOfSevenStages) {
  Random random(2);
  for (int trial = 0; trial < 12; ++trial) {
    const Gradients gradients = trial % 2 == 0 ? Gradients::kAtMostTheOutput : Gradients::kEqual;
    CompareWithSearch(RandomChain(random, 7, 1, Uniform(random, 1, 6), kUnit, gradients), 3,
                      gradients);
    if (HasFailure()) FAIL() << "trial " << trial;
  }
}

// A gradient that is larger than its output can make it worth while to go forward early, while an
// output's smaller gradient is in memory: the planner does not look for such schedules.
TEST(BudgetTest, FindsAScheduleWhereGradientsAreLargerThanOutputs) {
  Random random(3);
  for (int trial = 0; trial < 20; ++trial) {
    CompareWithSearch(RandomChain(random, 6, 1, Uniform(random, 1, 6), kUnit, Gradients::kAny), 3,
                      Gradients::kAny);
    if (HasFailure()) FAIL() << "trial " << trial;
  }
}

// Sizes of up to a gigabyte have no unit of which a budget has few, sizes of a few bytes are no
// units at all.
TEST(BudgetTest, KeepsItsPromisesWhereSizesAreNoWholeUnits) {
  Random random(4);
  for (int trial = 0; trial < 30; ++trial) {
    const int stages = static_cast<int>(Uniform(random, 1, 24));
    const int64_t most = trial % 2 == 0 ? int64_t{1} << 30 : 3000;
    const Chain chain = RandomChain(random, stages, 2, most, 1, Gradients::kAny);
    ASSERT_OK_AND_ASSIGN(const int64_t least, LeastBudget(chain));
    ASSERT_OK_AND_ASSIGN(const Plan none, PlanNone(chain));
    EXPECT_FALSE(PlanBudget(chain, least - 1).ok());
    for (int step = 0; step <= 8; ++step) {
      const int64_t budget = least + (none.peak_bytes - least) / 8 * step;
      ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBudget(chain, budget));
      EXPECT_LE(plan.peak_bytes, budget);
      ASSERT_OK_AND_ASSIGN(const Simulation simulation, Simulate(chain, plan.operations));
      EXPECT_LE(simulation.peak_bytes, plan.peak_bytes);
      EXPECT_EQ(simulation.time, plan.time);
      EXPECT_GE(plan.time, none.time);
      ASSERT_OK_AND_ASSIGN(const Plan again, PlanBudget(chain, budget));
      EXPECT_EQ(again.operations, plan.operations);
    }
    if (HasFailure()) FAIL() << "trial " << trial;
  }
}

// A table of large units has no room for what fits to the byte: 39 outputs beside one saved set,
// each of which it rounds up.
TEST(BudgetTest, IsNeverSlowerThanSegmentsThatFit) {
  const Chain chain = EqualChain(40, UnitStage(1, 100003, 100003, {{5000111, 2}}));
  // The longest is one segment: nothing is computed again.
  for (int length = 1; length <= 64; length *= 2) {
    ASSERT_OK_AND_ASSIGN(const Plan segments, PlanSegments(chain, length));
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBudget(chain, segments.peak_bytes));
    EXPECT_LE(plan.time, segments.time) << length;
    EXPECT_LE(plan.peak_bytes, segments.peak_bytes) << length;
  }
}

// Of sizes without a common unit, at just the memory that the policy needs.
TEST(BudgetTest, IsNeverSlowerThanOneOptionForAllStages) {
  const Stage stage =
      UnitStage(1000, 100003, 100003, {{5000111, 2000}, {3300017, 2001}, {2700049, 2003}});
  for (const int stages : {12, 40, 100}) {
    const Chain chain = EqualChain(stages, stage);
    for (int option = 0; option < 3; ++option) {
      const std::vector<int> options(chain.stages.size(), option);
      ASSERT_OK_AND_ASSIGN(const Plan alike, PlanSelective(chain, options));
      ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBudget(chain, alike.peak_bytes));
      EXPECT_LE(plan.time, alike.time) << stages << " stages, option " << option;
      EXPECT_LE(plan.peak_bytes, alike.peak_bytes);
    }
  }
}

// With a unit that is a multiple of a size's the plan is close to the best: each kept value
// costs at most a unit.
TEST(BudgetTest, ALargerUnitCostsAtMostAUnitForEachValue) {
  constexpr int kStages = 24;
  const Stage stage = UnitStage(100, 1001, 1001, {{20003, 200}, {14001, 203}, {10007, 213}});
  const Chain chain = EqualChain(kStages, stage);
  const int64_t budget = 240000 * kUnit;
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBudget(chain, budget));
  // The same sizes, a thousand times smaller and rounded up by a unit for each value.
  const Chain larger = EqualChain(kStages, UnitStage(100, 2, 2, {{21, 200}, {15, 203}, {11, 213}}));
  ASSERT_OK_AND_ASSIGN(const Plan bound, PlanBudget(larger, 240 * kUnit));
  EXPECT_LE(plan.time, bound.time);
}

}  // namespace
}  // namespace brigade::recompute
