// State out of a training on a GPU, and into another one.

#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/test_peer.h"
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

// The host's work of the last step goes on when the optimizer ends, in memory of the GPU's context.
TEST(StateGpuTest, EndsAfterTheHostsWork) {
  OffloadOptions delayed = {.optimizer_state = device::Tier::kHost, .host_threads = 1};
  delayed.delay_update = true;
  delayed.delay_warm_up = 0;
  for (const OffloadOptions& offload :
       {delayed, InFile(device::Tier::kDevice), InFile(device::Tier::kFile)}) {
    collectives::OnThreads({.size = 1, .device = device::Cuda()}, [&](collectives::Rank& self) {
      ZeroOptions options = Options(3);
      options.offload = offload;
      auto zero = CreateZero(ToyModel(), options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      for (int step = 0; step < 2; ++step) ASSERT_OK(trainer.Step());
      // So that the host is behind.
      ASSERT_OK(ZeroOptimizerTestPeer::HostStream(*zero).Enqueue(
          {"slow host", {}}, [](device::ThreadPool&) {
            absl::SleepFor(absl::Milliseconds(50));
            return absl::OkStatus();
          }));
      ASSERT_OK(trainer.Step());
    });
  }
}

}  // namespace
}  // namespace brigade::zero
