// Ranks that find each other over TCP: the side channel is Gloo's. NCCL is a stand-in, so they are
// threads.

#include "brigade/collectives/engines/nccl/world.h"

#include <functional>
#include <thread>
#include <vector>

#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

void OnWorld(int size, const std::function<void(Rank&)>& body) {
  const int port = testing::FreePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Rank self = {rank, size, NewRankContext(rank, {}), nullptr, nullptr};
      self.stream = self.context->CreateStream("compute").value();
      LaunchInfo launch_info;
      launch_info.rank = rank;
      launch_info.size = size;
      launch_info.master_port = port;
      NcclWorldOptions options;
      options.nccl.api = FakeNccl::Api();
      auto world = JoinNcclWorld(launch_info, options, *self.context);
      ASSERT_OK(world);
      self.communicator = *std::move(world);
      body(self);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclTest, AWorldAddsSplitsAndNamesCallsThatDiffer) {
  OnWorld(3, [](Rank& self) {
    std::vector<float> a(64, 1.0f), b(64);
    ASSERT_OK(self.communicator->AllReduce(a.data(), b.data(), 64, kFloat32, {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(b[63], 3.0f);
    auto part = self.communicator->Split(self.rank == 0 ? 1 : 0, 0);
    ASSERT_OK(part);
    ASSERT_OK((*part)->AllReduce(a.data(), b.data(), 64, kFloat32, {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(b[63], self.rank == 0 ? 1.0f : 2.0f);
    // It may tell already that the calls differ.
    self.communicator
        ->Broadcast(a.data(), b.data(), 64, kFloat32, self.rank == 1 ? 2 : 0, *self.stream)
        .IgnoreError();
    while (self.communicator->status().ok()) std::this_thread::yield();
    EXPECT_THAT(self.communicator->status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 0 calls broadcast(64 float32, from rank 0) as its call 2, "
                                   "but rank 1 calls broadcast(64 float32, from rank 2)")));
    ASSERT_OK(self.stream->Synchronize());
    auto again = self.communicator->Shrink({});
    ASSERT_OK(again);
    ASSERT_OK((*again)->AllReduce(a.data(), b.data(), 64, kFloat32, {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(b[63], 3.0f);
    ASSERT_OK((*again)->Split(0, 0).status());  // nobody leaves before all have their sums
  });
}

TEST_F(NcclTest, AWorldOfOneNeedsNobody) {
  OnWorld(1, [](Rank& self) {
    std::vector<float> a(64, 1.0f);
    ASSERT_OK(self.communicator->AllReduce(a.data(), a.data(), 64, kFloat32, {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(a[0], 1.0f);
  });
}

}  // namespace
}  // namespace brigade::collectives
