// Ranks that are threads and share one GPU: the same suite as on the CPU, and many operations in
// flight.

#include <vector>

#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/tests/collectives/conformance.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

class ThreadGroupGpuConformance : public ::testing::TestWithParam<int> {};

TEST_P(ThreadGroupGpuConformance, EveryOperationOfEveryType) {
  const RanksOptions options = {.size = GetParam(), .device = device::Cuda()};
  Conform(options, ThreadEngines(options), InterestingCounts(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, ThreadGroupGpuConformance, ::testing::Values(1, 2, 4, 8));

// Each round's input is the last round's sum: a missing wait between two ranks' streams shows in
// the numbers.
TEST(ThreadGroupGpuTest, RoundsFollowEachOtherWithoutAHostWait) {
  constexpr int kRanks = 4, kRounds = 12;
  constexpr int64_t kCount = 1 << 20;
  OnThreads({.size = kRanks, .device = device::Cuda()}, [&](Rank& self) {
    auto buffer = self.context->Allocate(2 * kCount * sizeof(int32_t), device::Purpose::kScratch);
    ASSERT_OK(buffer);
    int32_t* input = buffer->as<int32_t>().data();
    int32_t* output = input + kCount;
    std::vector<int32_t> host(kCount, self.rank + 1);
    const int64_t bytes = kCount * static_cast<int64_t>(sizeof(int32_t));
    ASSERT_OK(self.stream->Copy(input, host.data(), bytes));
    ASSERT_OK(self.stream->Synchronize());
    const int64_t waits = self.context->host_waits();
    int32_t wanted = 0;
    for (int round = 0; round < kRounds; ++round) {
      wanted = round == 0 ? 1 + 2 + 3 + 4 : wanted * kRanks;
      ASSERT_OK(self.communicator->AllReduce(input, output, kCount, precision::DType::kInt32, {},
                                             *self.stream));
      std::swap(input, output);
    }
    EXPECT_EQ(self.context->host_waits(), waits);
    ASSERT_OK(self.stream->Copy(host.data(), input, bytes));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(host, std::vector<int32_t>(kCount, wanted));
  });
}

}  // namespace
}  // namespace brigade::collectives
