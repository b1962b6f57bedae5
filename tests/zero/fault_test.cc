// A rank that leaves or stays away in the middle of a step, among threads.

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/compressed_cases.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Rank;
using ::testing::HasSubstr;

// Steps that send what they have, wherever the state is, and those that send less.
std::vector<CompressedCase> Cases() {
  std::vector<CompressedCase> cases;
  for (const Home& home : Homes()) {
    CompressedCase& c = cases.emplace_back();
    c.name = ToString(home);
    home.Set(c.options);
    c.options.bucket_elements = 1000;
  }
  for (const CompressedCase& c : CompressedCases()) {
    if (c.options.node_ranks + c.options.shard_ranks == 0) cases.push_back(c);
  }
  return cases;
}

class FaultTest : public ::testing::TestWithParam<CompressedCase> {};

// The step of a rank whose peer 1 does not take part in backward; returns what ended it.
absl::Status BrokenStep(ZeroOptimizer& zero, ToyTrainer& trainer) {
  absl::Status status = trainer.Backward(0);
  if (status.ok()) status = zero.FinishBackward();
  if (status.ok()) status = zero.Step();
  if (status.ok()) status = zero.step_stream().Synchronize();
  return status;
}

void TrainWithout1(const CompressedCase& c, bool leaves, absl::StatusCode code,
                   const std::string& text) {
  const absl::Duration timeout = absl::Seconds(leaves ? 60 : 1);
  collectives::OnThreads({.size = c.ranks, .timeout = timeout}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), c.options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    for (int step = 0; step < 2; ++step) ASSERT_OK(trainer.Step());
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(zero->step_stream().Synchronize());
    const auto before = Capture(*zero, self);
    ASSERT_OK(before);
    ASSERT_OK(trainer.Forward());
    if (self.rank == 1) {
      while (!leaves && self.communicator->status().ok()) {
        absl::SleepFor(absl::Milliseconds(1));
      }
      return;
    }
    EXPECT_THAT(BrokenStep(*zero, trainer), StatusIs(code, HasSubstr(text)));
    ASSERT_OK(zero->CancelStep());
    const auto after = CaptureAlone(*zero, self);
    ASSERT_OK(after);
    EXPECT_EQ(after->step.step, before->step.step);
    EXPECT_OK(CompareLent(c.options, *after, *before, *before));
  });
}

TEST_P(FaultTest, ARankThatLeavesIsNamedAndTheStateCanBeRead) {
  TrainWithout1(GetParam(), true, absl::StatusCode::kUnavailable, "rank 1 has left");
}

TEST_P(FaultTest, ARankThatStaysAwayIsNamedAtTheDeadline) {
  // A second each, and stages are alike.
  const ZeroOptions& options = GetParam().options;
  const bool is_compressed = options.exchanges() || options.quantized_gradients.has_value();
  if (is_compressed && options.stage != 1) GTEST_SKIP();
  TrainWithout1(GetParam(), false, absl::StatusCode::kDeadlineExceeded,
                "rank 1 did not join within 1s");
}

INSTANTIATE_TEST_SUITE_P(Cases, FaultTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace brigade::zero
