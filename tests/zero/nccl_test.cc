// Errors on an engine whose streams go on after them, with arrays that hold no results: NCCL's, on
// its stand-in.

#include <chrono>
#include <string>
#include <thread>

#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Rank;
using emulator::EmulatedNccl;

constexpr int kRanks = 3;
const auto kEnds = StatusIs(absl::StatusCode::kCancelled, "rank 1 has enough");

class ZeroNcclTest : public collectives::NcclTest, public ::testing::WithParamInterface<int> {
 protected:
  // Ranks with a toy of the stage; rank 1 ends the group while the others wait for it.
  void OnToys(const std::function<void(Rank&, ZeroOptimizer&)>& body) {
    const collectives::RanksOptions options = {.size = kRanks};
    collectives::OnRanks(options, collectives::NcclEngines(options), [&](Rank& self) {
      ZeroOptions zero_options;
      zero_options.stage = GetParam();
      zero_options.bucket_elements = 1000;
      auto zero = CreateZero(ToyModel(), zero_options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      body(self, *zero);
      self.AwaitOthers();
    });
  }
};

void EndTheGroup(Rank& self) {
  self.communicator->Abort(absl::CancelledError("rank 1 has enough"));
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroNcclTest, ::testing::Range(0, kStages));

TEST_P(ZeroNcclTest, AnExportWhoseLastGatherIsAbortedIsAnError) {
  OnToys([](Rank& self, ZeroOptimizer& zero) {
    const int last = static_cast<int>(zero.plan().buckets().size()) - 1;
    self.AwaitOthers();
    const int calls = EmulatedNccl::Calls("ncclAllGather");
    self.AwaitOthers();
    const auto read = [&](int parameter, absl::Span<const float>) {
      if (self.rank != 1 || zero.plan().parameter(parameter).bucket != last - 1) {
        return absl::OkStatus();
      }
      while (EmulatedNccl::Calls("ncclAllGather") < calls + kRanks * last + kRanks - 1) {
        std::this_thread::yield();
      }
      // The others' calls have returned.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EndTheGroup(self);
      return absl::OkStatus();
    };
    EXPECT_THAT(zero.ExportParameters(read), kEnds);
  });
}

TEST_P(ZeroNcclTest, TheStateBeforeAStepThatIsAbortedCanBeRead) {
  OnToys([](Rank& self, ZeroOptimizer& zero) {
    ToyTrainer trainer(zero, self);
    ASSERT_OK(trainer.Step());
    ASSERT_OK(self.communicator->Synchronize(*self.stream));
    const auto before = Capture(zero, self);
    ASSERT_OK(before);
    ASSERT_OK(trainer.Forward());
    if (self.rank != 1) {
      // All is enqueued, the update and the next pass too, while rank 1 has not begun.
      ASSERT_OK(trainer.Backward(0));
      ASSERT_OK(zero.FinishBackward());
      ASSERT_OK(zero.Step());
      ASSERT_OK(trainer.Forward());
    }
    self.AwaitOthers();
    if (self.rank == 1) EndTheGroup(self);
    EXPECT_THAT(self.communicator->Synchronize(zero.step_stream()), kEnds);
    ASSERT_OK(zero.CancelStep());
    const auto after = Capture(zero, self);
    ASSERT_OK(after);
    EXPECT_EQ(after->step.step, before->step.step);
    EXPECT_EQ(after->step.iteration, before->step.iteration);
    EXPECT_EQ(after->arrays, before->arrays);
  });
}

}  // namespace
}  // namespace brigade::zero
