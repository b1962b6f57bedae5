#include <barrier>
#include <thread>
#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

TEST(NoAllocationTest, SteadyStateOfThreads) {
  constexpr int kSize = 3;
  std::barrier meet(kSize);
  int64_t before = 0, after = 0;
  device::Gate gate;
  // The race checker allocates.
  device::ContextOptions no_checks;
  no_checks.checks = false;
  auto group = ThreadGroup::Create({.size = kSize}).value();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      auto context = device::Context::Create(no_checks).value();
      auto stream = context->NewStream("compute").value();
      auto communicator =
          Communicator::Create(group->Join(rank, *context).value(), *context).value();
      constexpr int64_t kCount = 1000;
      std::vector<float> small(kCount), large(kSize * kCount);
      bool ok = true;
      const auto step = [&] {
        for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
          ok &=
              communicator
                  ->AllReduce(small.data(), small.data(), kCount, {.algorithm = algorithm}, *stream)
                  .ok();
          ok &= communicator
                    ->ReduceScatter(large.data(), small.data(), kCount, {.algorithm = algorithm},
                                    *stream)
                    .ok();
          ok &=
              communicator
                  ->AllGather(small.data(), large.data(), kCount, {.algorithm = algorithm}, *stream)
                  .ok();
        }
        if (rank == 0) ok &= communicator->Send(small.data(), kCount, 1, {}, *stream).ok();
        if (rank == 1) ok &= communicator->Receive(small.data(), kCount, 0, {}, *stream).ok();
        ok &= communicator->Barrier(*stream).ok();
      };
      const auto steps = [&] {
        for (int i = 0; i < 20; ++i) step();
      };
      // Warm up with the queues at their deepest, so that the high-water mark does not depend on timing.
      ok &= device::Block(*stream, gate).ok();
      steps();
      meet.arrive_and_wait();
      gate.Open();
      ok &= stream->Synchronize().ok();
      meet.arrive_and_wait();
      if (rank == 0) before = brigade::testing::CountedAllocations();
      meet.arrive_and_wait();
      for (int round = 0; round < 10; ++round) {
        steps();
        ok &= stream->Synchronize().ok();
      }
      meet.arrive_and_wait();
      if (rank == 0) after = brigade::testing::CountedAllocations();
      EXPECT_TRUE(ok);
      meet.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(after - before, 0);
  EXPECT_GT(before, 0);  // the counter counts
}

}  // namespace
}  // namespace brigade::collectives
