#include "brigade/recompute/curve.h"

#include <cstdint>
#include <vector>

#include "brigade/recompute/planner.h"
#include "brigade/tests/recompute/chains.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::recompute {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;

Chain Equal(int stages) { return EqualChain(stages, UnitStage(1, 1, 1, {{4, 2}})); }

CurvePoint Point(int64_t units, double time) { return {units * kUnit, time}; }

// The tables of planner_test: the least budget of each time.
TEST(CurveTest, HasTheLeastMemoryOfEachTime) {
  EXPECT_THAT(BudgetCurve(Equal(4), 1000).value(),
              ElementsAre(Point(17, 12), Point(14, 13), Point(10, 14), Point(8, 15), Point(7, 16),
                          Point(6, 18)));
  EXPECT_THAT(BudgetCurve(Equal(6), 1000).value(),
              ElementsAre(Point(25, 18), Point(22, 19), Point(18, 20), Point(14, 21), Point(11, 22),
                          Point(9, 23), Point(8, 25), Point(7, 26), Point(6, 33)));
}

// Blocks of three options and a head, of sizes without a common unit.
Chain Blocks(int blocks) {
  Chain chain;
  for (int s = 0; s < blocks; ++s) {
    chain.stages.push_back({.forward_time = 100,
                            .output_bytes = 1000,
                            .gradient_bytes = 1000,
                            .transient_bytes = 9000,
                            .options = {{"all", 20'100, 0, 4000, 200},
                                        {"less", 14'300, 2000, 6000, 203},
                                        {"least", 10'700, 3000, 9000, 213}}});
  }
  return chain;
}

TEST(CurveTest, IsWhatEveryBudgetGives) {
  const Chain chain = Blocks(5);
  ASSERT_OK_AND_ASSIGN(const std::vector<CurvePoint> curve, BudgetCurve(chain, 1000));
  ASSERT_OK_AND_ASSIGN(const int64_t least, LeastBudget(chain));
  ASSERT_OK_AND_ASSIGN(const Plan none, PlanNone(chain));
  EXPECT_EQ(curve.front().time, none.time);
  EXPECT_EQ(curve.back().peak_bytes, least);
  size_t at = curve.size() - 1;
  for (int64_t budget = least; budget <= none.peak_bytes; budget += kAlignmentBytes) {
    while (at > 0 && curve[at - 1].peak_bytes <= budget) --at;
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBudget(chain, budget));
    EXPECT_EQ(plan.time, curve[at].time) << budget;
  }
  for (size_t i = 1; i < curve.size(); ++i) {
    EXPECT_LT(curve[i].peak_bytes, curve[i - 1].peak_bytes);
    EXPECT_GT(curve[i].time, curve[i - 1].time);
  }
}

TEST(CurveTest, NoPolicyIsBelowIt) {
  const Chain chain = Blocks(8);
  ASSERT_OK_AND_ASSIGN(const std::vector<CurvePoint> curve, BudgetCurve(chain, 1000));
  for (const Policy& policy : PoliciesWithoutBudget(8)) {
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanBy(policy, chain, std::vector<int>(8, 1)));
    for (const CurvePoint& point : curve) {
      if (point.peak_bytes > plan.peak_bytes) continue;
      EXPECT_LE(point.time, plan.time) << ToString(policy);
      break;
    }
  }
}

TEST(CurveTest, OfFewPointsHasBothEnds) {
  const Chain chain = Blocks(8);
  ASSERT_OK_AND_ASSIGN(const std::vector<CurvePoint> all, BudgetCurve(chain, 1000));
  for (const int points : {2, 3, 7}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<CurvePoint> curve, BudgetCurve(chain, points));
    EXPECT_GE(curve.size(), 2u);
    EXPECT_LE(curve.size(), static_cast<size_t>(points));
    EXPECT_EQ(curve.front().time, all.front().time);
    EXPECT_EQ(curve.back(), all.back());
  }
  EXPECT_THAT(BudgetCurve(chain, 1), StatusIs(absl::StatusCode::kInvalidArgument,
                                              "max_points is 1; it must be at least 2"));
  EXPECT_THAT(BudgetCurve({}, 2), StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

TEST(CurveTest, AChainOfOneStageHasOnePoint) {
  const Chain chain = Equal(1);
  EXPECT_THAT(BudgetCurve(chain, 2).value(), ElementsAre(Point(5, 3)));
}

TEST(CurveTest, SegmentsAreTheShortestOfTheirNumber) {
  const auto texts = [](int stages) {
    std::vector<std::string> result;
    for (const Policy& policy : PoliciesWithoutBudget(stages)) result.push_back(ToString(policy));
    return result;
  };
  EXPECT_THAT(texts(1), ElementsAre("none", "block", "selective"));
  EXPECT_THAT(texts(6), ElementsAre("none", "block", "selective", "segments:2", "segments:3"));
  // 5, 4, 3 and 2 segments.
  EXPECT_THAT(texts(10), ElementsAre("none", "block", "selective", "segments:2", "segments:3",
                                     "segments:4", "segments:5"));
}

}  // namespace
}  // namespace brigade::recompute
