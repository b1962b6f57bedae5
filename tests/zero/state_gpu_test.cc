// State out of a training on a GPU, and into another one.

#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

constexpr int kRanks = 2;

ZeroOptions Options(int stage) {
  ZeroOptions options;
  options.stage = stage;
  options.bucket_elements = 1000;
  return options;
}

TEST(StateGpuTest, GoesOnInTheNextStageWithTheCpusBits) {
  std::vector<std::vector<float>> wanted;
  collectives::OnThreads({.size = kRanks}, [&](collectives::Rank& self) {
    auto zero = CreateZero(ToyModel(), Options(0), self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    while (trainer.step < 4) ASSERT_OK(trainer.Step());
    auto exported = Exported(*zero);
    ASSERT_OK(exported);
    if (self.rank == 0) wanted = *exported;
  });
  for (int stage = 0; stage < kStages; ++stage) {
    collectives::OnThreads(
        {.size = kRanks, .device = device::Cuda()}, [&](collectives::Rank& self) {
          auto first = CreateZero(ToyModel(), Options(stage), self).value();
          ASSERT_OK(InitializeToy(*first));
          ToyTrainer trainer(*first, self);
          while (trainer.step < 2) ASSERT_OK(trainer.Step());
          const auto before = Capture(*first, self);
          ASSERT_OK(before);
          // Read beside the next step, whose update waits.
          auto reader = self.context->CreateStream("reader").value();
          CapturedState seen;
          ASSERT_OK(first->LendState(*reader));
          ASSERT_OK(EnqueueCapture(*first, *reader, seen));
          ASSERT_OK(first->ReturnState());
          ASSERT_OK(trainer.Step());
          ASSERT_OK(reader->Synchronize());
          EXPECT_EQ(seen, *before);
          ASSERT_OK(first->step_stream().Synchronize());

          auto second = CreateZero(ToyModel(), Options((stage + 1) % kStages), self).value();
          ASSERT_OK(LoadCaptured(*second, seen, 256));
          ToyTrainer goes_on(*second, self);
          goes_on.step = 2;
          while (goes_on.step < 4) ASSERT_OK(goes_on.Step());
          const auto exported = Exported(*second);
          ASSERT_OK(exported);
          EXPECT_EQ(*exported, wanted) << "stage " << stage;
        });
  }
}

}  // namespace
}  // namespace brigade::zero
