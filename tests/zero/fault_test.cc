// A rank that leaves or stays away in the middle of a step, among threads.

#include <chrono>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Rank;
using ::testing::HasSubstr;

class FaultTest : public ::testing::TestWithParam<Home> {};

// The step of a rank whose peer 1 does not take part in backward; returns what ended it.
absl::Status BrokenStep(ZeroOptimizer& zero, ToyTrainer& trainer) {
  absl::Status status = trainer.Backward(0);
  if (status.ok()) status = zero.FinishBackward();
  if (status.ok()) status = zero.Step();
  if (status.ok()) status = zero.step_stream().Synchronize();
  return status;
}

void TrainWithout1(const Home& home, bool leaves, absl::StatusCode code, const std::string& text) {
  collectives::OnThreads({.size = 3, .timeout = absl::Seconds(leaves ? 60 : 1)}, [&](Rank& self) {
    ZeroOptions options;
    home.Set(options);
    options.bucket_elements = 1000;
    auto zero = CreateZero(ToyModel(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    ASSERT_OK(trainer.Step());
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
    const auto after = Capture(*zero, self);
    ASSERT_OK(after);
    EXPECT_EQ(after->step.step, before->step.step);
    EXPECT_EQ(after->arrays, before->arrays);
  });
}

TEST_P(FaultTest, ARankThatLeavesIsNamedAndTheStateCanBeRead) {
  TrainWithout1(GetParam(), true, absl::StatusCode::kUnavailable, "rank 1 has left");
}

TEST_P(FaultTest, ARankThatStaysAwayIsNamedAtTheDeadline) {
  TrainWithout1(GetParam(), false, absl::StatusCode::kDeadlineExceeded,
                "rank 1 did not join within 1s");
}

INSTANTIATE_TEST_SUITE_P(Homes, FaultTest, ::testing::ValuesIn(Homes()),
                         [](const auto& info) { return ToString(info.param); });

}  // namespace
}  // namespace brigade::zero
