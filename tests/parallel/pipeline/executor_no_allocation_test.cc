// In steady state a step of a pipeline allocates nothing, and its bits stay.

#include <barrier>
#include <thread>
#include <vector>

#include "brigade/parallel/pipeline/executor.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/parallel/pipeline/toy_pipeline.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

// How often steps after the first ones allocate.
int64_t AllocationsOf(const PipelineSchedule& schedule) {
  const int size = schedule.shape.stages;
  const auto create_engine = collectives::ThreadEngines({.size = size});
  std::barrier meet(size);
  int64_t before = 0, after = 0;
  // The race checker allocates.
  device::ContextOptions no_checks;
  no_checks.checks = false;
  const auto run = [&](int rank) {
    auto context = device::Context::Create(no_checks).value();
    auto stream = context->CreateStream("compute").value();
    auto world =
        collectives::Communicator::Create(create_engine(rank, *context).value(), *context).value();
    auto grid = Grid::Create({.pipeline = size}, *world).value();
    auto executor = PipelineExecutor::Create(schedule, {kToyWidth, precision::DType::kFloat32},
                                             *grid, *context, *stream)
                        .value();
    ToyStage module(schedule.shape, rank, executor->buffers());
    device::Gate gate;
    const auto steps = [&] {
      for (int step = 0; step < 3; ++step) {
        EXPECT_TRUE(executor->Run(module).ok());
        EXPECT_TRUE(executor->RunForward(module).ok());
      }
    };
    // With the queues at their deepest, so that the high-water mark does not depend on timing.
    EXPECT_TRUE(device::Block(*stream, gate).ok());
    steps();
    meet.arrive_and_wait();
    gate.Open();
    EXPECT_TRUE(executor->Synchronize().ok());
    meet.arrive_and_wait();
    if (rank == 0) before = testing::CountedAllocations();
    meet.arrive_and_wait();
    for (int round = 0; round < 5; ++round) {
      steps();
      EXPECT_TRUE(executor->Synchronize().ok());
    }
    meet.arrive_and_wait();
    if (rank == 0) after = testing::CountedAllocations();
    meet.arrive_and_wait();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  return after - before;
}

TEST(ExecutorNoAllocationTest, SteadyStateAllocatesNothing) {
  for (const char* const name : {"1f1b", "interleaved:2", "zb-v"}) {
    const PipelineSchedule schedule = CreateSchedule({ParseSchedule(name).value(), 2, 4}).value();
    EXPECT_EQ(AllocationsOf(schedule), 0) << name;
  }
  EXPECT_GT(testing::CountedAllocations(), 0);
}

}  // namespace
}  // namespace brigade::parallel
