// Every stage gives the specification's bits over 50 steps: parameters, loss scales and gradient norms.

#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using optim::OptimizerKind;
using precision::DType;

class GoldenTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenTest, EveryStageGivesTheSpecificationsBits) {
  const GoldenCase& c = GetParam();
  const Trajectory wanted = Specified(c);
  int skipped = 0;
  for (const kernels::StepState& state : wanted.states) skipped += state.skip;
  EXPECT_GE(skipped, 2);
  EXPECT_LT(skipped, kGoldenSteps / 2);
  const int stages = c.accumulation == Accumulation::kAtBoundary ? 2 : kStages;
  for (int stage = 0; stage < stages; ++stage) {
    for (const bool overlap : {true, false}) {
      if (!overlap && c.ranks != 2) continue;
      device::RaceChecker checker;
      ZeroOptions options = OptionsOf(c, stage);
      options.overlap_comm = overlap;
      collectives::OnThreads(
          {.size = c.ranks, .race_checker = &checker}, [&](collectives::Rank& self) {
            Trajectory trained;
            EXPECT_OK(Train(self, options, InjectionsOf(c), trained));
            EXPECT_OK(Compare(trained, wanted)) << "stage " << stage << ", rank " << self.rank;
          });
      EXPECT_TRUE(checker.reports().empty());
    }
  }
}

std::vector<GoldenCase> Cases() {
  std::vector<GoldenCase> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
        cases.push_back({ranks, dtype, kind, 1, Accumulation::kEveryMicroBatch});
        cases.push_back({ranks, dtype, kind, 3, Accumulation::kEveryMicroBatch});
        cases.push_back({ranks, dtype, kind, 3, Accumulation::kAtBoundary});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return ToString(info.param); });

}  // namespace
}  // namespace brigade::zero
