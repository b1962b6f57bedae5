// What every engine must do, by NCCL on GPUs, one for each rank.

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "brigade/collectives/engines/nccl/nccl_engine.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/kernels/fill/fill.h"
#include "brigade/tests/collectives/conformance.h"
#include "brigade/tests/collectives/ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

// Of the side channel: threads of one process need no device to talk.
struct Side {
  std::shared_ptr<ThreadGroup> group;
  std::vector<std::unique_ptr<device::Context>> contexts;
};

CreateEngineFn NcclEngines(const RanksOptions& options) {
  auto side = std::make_shared<Side>();
  side->group = ThreadGroup::Create({options.size, options.timeout}).value();
  for (int rank = 0; rank < options.size; ++rank) {
    side->contexts.push_back(device::Context::Create({}).value());
  }
  return [=](int rank, device::Context& context) -> absl::StatusOr<std::unique_ptr<Engine>> {
    NcclOptions nccl;
    nccl.timeout = options.timeout;
    auto api = LoadNccl();
    if (!api.ok()) return api.status();
    nccl.api = *api;
    auto joined = side->group->Join(rank, *side->contexts[static_cast<size_t>(rank)]);
    if (!joined.ok()) return joined.status();
    return CreateNcclEngine(nccl, *std::move(joined), context);
  };
}

bool HaveDevices(int wanted) {
  int devices = 0;
  EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  return devices >= wanted;
}

// First: no kernel of the process has been launched yet.
TEST(NcclGpuTest, KernelsDoNotWaitForNcclsToBeLoaded) {
  if (!HaveDevices(2)) GTEST_SKIP() << "too few GPUs";
  const RanksOptions options = {
      .size = 2, .timeout = absl::Seconds(5), .device = device::Cuda(), .own_devices = true};
  OnRanks(options, NcclEngines(options), [](Rank& self) {
    constexpr int64_t kCount = 1000;
    auto sums = self.context->Allocate(kCount * 4, device::Purpose::kScratch).value();
    auto other = self.context->Allocate(kCount * 4, device::Purpose::kScratch).value();
    auto stream = self.context->CreateStream("other").value();
    ASSERT_OK(self.stream->FillBytes(sums.data(), 0, kCount * 4));
    ASSERT_OK(self.stream->Synchronize());
    if (self.rank == 1) self.AwaitOthers();
    ASSERT_OK(self.communicator->AllReduce(sums.data(), sums.data(), kCount, kFloat32,
                                           By(Algorithm::kNative), *self.stream));
    // NCCL's kernel waits for rank 1, and rank 1 for this.
    const kernels::FillSegment segment = {other.data(), kCount};
    ASSERT_OK(kernels::Fill({segment}, kFloat32, 1.0, *stream));
    if (self.rank == 0) self.AwaitOthers();
    EXPECT_OK(self.communicator->Synchronize(*self.stream));
    EXPECT_OK(stream->Synchronize());
  });
}

class NcclGpuConformance : public ::testing::TestWithParam<int> {};

TEST_P(NcclGpuConformance, EveryOperationOfEveryType) {
  if (!HaveDevices(GetParam())) GTEST_SKIP() << "too few GPUs";
  const RanksOptions options = {.size = GetParam(), .device = device::Cuda(), .own_devices = true};
  Conform(options, NcclEngines(options), {1, 64 * 6 + 1});
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, NcclGpuConformance, ::testing::Values(1, 2, 4, 8));

}  // namespace
}  // namespace brigade::collectives
