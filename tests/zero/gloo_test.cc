// ZeRO over processes: the specification's bits, and a process that is killed in the middle of a
// step.

#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/compressed_cases.h"
#include "brigade/tests/zero/golden.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Rank;
using collectives::testing::Arrays;
using collectives::testing::Fault;
using collectives::testing::OnProcesses;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kRanks = 4;

struct GlooCase {
  precision::DType dtype;
  optim::OptimizerKind optimizer;
};
class GlooTest : public ::testing::TestWithParam<GlooCase> {};

TEST_P(GlooTest, EveryStageGivesTheSpecificationsBitsOverProcesses) {
  struct Run {
    GoldenCase golden_case;
    Trajectory wanted;
  };
  std::vector<Run> runs;
  for (const int micro_batches : {1, 3}) {
    for (const auto when : {Accumulation::kEveryMicroBatch, Accumulation::kAtBoundary}) {
      if (when == Accumulation::kAtBoundary && micro_batches == 1) continue;
      // Large buckets: few messages, whose number is what takes the time here.
      const GoldenCase c = {kRanks, GetParam().dtype, GetParam().optimizer, micro_batches,
                            when,   100'000};
      runs.push_back({c, Specified(c)});
    }
  }
  const auto reports = OnProcesses(
      kRanks, collectives::testing::kNever, [&](Rank& self, Arrays&, Fault&) -> absl::Status {
        for (const Run& run : runs) {
          const bool whole = run.golden_case.accumulation == Accumulation::kAtBoundary;
          for (int stage = 0; stage < (whole ? 2 : kStages); ++stage) {
            Trajectory trained;
            BRIGADE_RETURN_IF_ERROR(Train(self, OptionsOf(run.golden_case, stage),
                                          InjectionsOf(run.golden_case), trained));
            const absl::Status same = Compare(trained, run.wanted);
            if (same.ok()) continue;
            return absl::InternalError(
                absl::StrCat(ToString(run.golden_case), ", stage ", stage, ": ", same.message()));
          }
        }
        return absl::OkStatus();
      });
  collectives::testing::ExpectAllOk(reports);
}

using optim::OptimizerKind;
using precision::DType;
INSTANTIATE_TEST_SUITE_P(AdamW, GlooTest,
                         ::testing::Values(GlooCase{DType::kFloat32, OptimizerKind::kAdamW},
                                           GlooCase{DType::kFloat16, OptimizerKind::kAdamW},
                                           GlooCase{DType::kBFloat16, OptimizerKind::kAdamW}));
INSTANTIATE_TEST_SUITE_P(Lamb, GlooTest,
                         ::testing::Values(GlooCase{DType::kBFloat16, OptimizerKind::kLamb}));
INSTANTIATE_TEST_SUITE_P(Sgd, GlooTest,
                         ::testing::Values(GlooCase{DType::kFloat32, OptimizerKind::kSgd},
                                           GlooCase{DType::kFloat16, OptimizerKind::kSgd},
                                           GlooCase{DType::kBFloat16, OptimizerKind::kSgd}));

// Steps until rank 2 kills itself in its third backward; then what the survivor had after two steps
// can be read.
absl::Status StepUntilRank2IsGone(Rank& self, const ZeroOptions& options, Fault& fault) {
  BRIGADE_ASSIGN_OR_RETURN(auto zero, CreateZero(ToyMatrices(), options, self));
  BRIGADE_RETURN_IF_ERROR(InitializeToy(*zero));
  ToyTrainer trainer(*zero, self);
  BRIGADE_RETURN_IF_ERROR(trainer.Step());
  BRIGADE_RETURN_IF_ERROR(trainer.Step());
  BRIGADE_RETURN_IF_ERROR(zero->step_stream().Synchronize());
  BRIGADE_ASSIGN_OR_RETURN(auto before, Capture(*zero, self));
  absl::Status status = trainer.Forward();
  if (self.rank == 2) {
    fault.Begin();
    kill(getpid(), SIGKILL);
  }
  if (status.ok()) status = trainer.Backward(0);
  if (status.ok()) status = zero->FinishBackward();
  if (status.ok()) status = zero->Step();
  // Either a call said so, or what was enqueued.
  if (status.ok()) status = zero->step_stream().Synchronize();
  fault.End();
  BRIGADE_RETURN_IF_ERROR(zero->CancelStep());
  BRIGADE_ASSIGN_OR_RETURN(auto after, CaptureAlone(*zero, self));
  if (after.step.step != before.step.step || after.step.loss_scale != before.step.loss_scale) {
    return absl::InternalError("the step is not the last one");
  }
  BRIGADE_RETURN_IF_ERROR(CompareLent(options, after, before, before));
  return status;
}

// What is sent as it is, in every stage, and what is sent with fewer bytes, in one each.
std::vector<CompressedCase> FaultCases() {
  std::vector<CompressedCase> cases;
  for (int stage = 0; stage < kStages; ++stage) {
    CompressedCase& c = cases.emplace_back();
    c.name = absl::StrCat("Stage", stage);
    c.options.stage = stage;
    c.options.bucket_elements = 1000;
  }
  for (const CompressedCase& c : CompressedCases()) {
    if (c.options.stage == 1 && c.options.node_ranks == 0) cases.push_back(c);
  }
  return cases;
}

class FaultTest : public ::testing::TestWithParam<CompressedCase> {};

TEST_P(FaultTest, ARankKilledInAStepIsNamedAndTheStateCanBeRead) {
  const auto reports =
      OnProcesses(kRanks, collectives::testing::kNever, [&](Rank& self, Arrays&, Fault& fault) {
        return StepUntilRank2IsGone(self, GetParam().options, fault);
      });
  // A group counts its own ranks, and says which these are.
  collectives::testing::ExpectReports(
      reports, 2,
      StatusIs(absl::StatusCode::kUnavailable,
               AnyOf(HasSubstr("rank 2 is gone"),
                     HasSubstr("in the group of ranks 2 and 3: rank 0 is gone"),
                     HasSubstr("in the group of ranks 0 and 2: rank 1 is gone"))));
}

INSTANTIATE_TEST_SUITE_P(Cases, FaultTest, ::testing::ValuesIn(FaultCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace brigade::zero
