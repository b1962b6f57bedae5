#ifndef BRIGADE_TESTS_COLLECTIVES_STEADY_STATE_H_
#define BRIGADE_TESTS_COLLECTIVES_STEADY_STATE_H_

// Ranks that make the same calls again and again, for tests of what that allocates.

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/collectives/compressed/one_bit_all_reduce.h"
#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/collectives/compressed/quantized_all_gather.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/collectives/compressed/top_k_all_reduce.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/device/testing.h"
#include "gtest/gtest.h"

namespace brigade::collectives {

// Warms `size` ranks up, calls begin(), makes 200 rounds of every call, calls end(). Both find all
// ranks waiting.
inline void RunSteadyState(int size, const CreateEngineFn& create_engine,
                           const std::function<void()>& begin, const std::function<void()>& end) {
  std::barrier meet(size);
  device::Gate gate;
  // The race checker allocates.
  device::ContextOptions no_checks;
  no_checks.checks = false;
  const auto run = [&](int rank) {
    auto context = device::Context::Create(no_checks).value();
    auto stream = context->CreateStream("compute").value();
    auto communicator =
        Communicator::Create(create_engine(rank, *context).value(), *context).value();
    Communicator& group = *communicator;
    constexpr int64_t kCount = 1000;
    std::vector<float> small(kCount), large(size * kCount), other(size * kCount);
    auto compressed = CompressedReduction::Create(group, *context, 2 * size * kCount).value();
    constexpr auto kInt4 = kernels::QuantFormat::kInt4;
    auto gather = QuantizedAllGather::Create(group, *context, kCount, kInt4).value();
    auto scatter = QuantizedReduceScatter::Create(group, {}, *context, kCount, kInt4).value();
    auto mean = OneBitAllReduce::Create(group, *context, kCount).value();
    const std::vector<PowerSgdTensor> tensors = {{0, 30, 20}, {600, 1, 400}};
    auto factors = PowerSgdAllReduce::Create(group, *context, tensors, {.rank = 2}).value();
    auto greatest = TopKAllReduce::Create(group, *context, kCount, 50).value();
    std::vector<float> local(kCount), sum(kCount), error(kCount), q(kCount), left(kCount);
    bool ok = true;
    const auto step = [&] {
      for (const Algorithm algorithm : kAlgorithms) {
        const ReduceOptions sum = By(algorithm);
        const GatherOptions gather = {algorithm};
        ok &= group.AllReduce(small.data(), small.data(), kCount, kFloat32, sum, *stream).ok();
        ok &= group.ReduceScatter(large.data(), small.data(), kCount, kFloat32, sum, *stream).ok();
        ok &= group.AllGather(small.data(), large.data(), kCount, kFloat32, gather, *stream).ok();
        ok &= group.AllToAll(large.data(), other.data(), kCount, kFloat32, *stream).ok();
        ok &= group.Shift(small.data(), other.data(), kCount, kFloat32, 1, *stream).ok();
        ok &= group.Broadcast(small.data(), small.data(), kCount, kFloat32, 0, *stream).ok();
      }
      for (const WireScaling scaling : {WireScaling::kStatic, WireScaling::kDynamic}) {
        const WireOptions wire = {.scaling = scaling};
        ok &= compressed->AllReduce(small.data(), small.data(), kCount, wire, *stream).ok();
        ok &= compressed
                  ->SumOnWire(CollectiveKind::kReduceScatter, large.data(), kCount, kFloat32, wire,
                              *stream)
                  .ok();
      }
      ok &= gather->AllGather(small.data(), large.data(), kCount, kFloat32, {}, *stream).ok();
      ok &=
          scatter->ReduceScatter(large.data(), small.data(), kCount, kFloat32, 1.0f, *stream).ok();
      ok &= mean->AllReduce(small.data(), small.data(), kCount, kFloat32,
                            {local.data(), sum.data()}, nullptr, {}, *stream)
                .ok();
      ok &=
          factors->AllReduce(small.data(), small.data(), {error.data(), q.data()}, nullptr, *stream)
              .ok();
      ok &= greatest
                ->AllReduce(small.data(), small.data(), kCount, 50, kFloat32, left.data(), nullptr,
                            {}, *stream)
                .ok();
      if (rank == 0) ok &= group.Send(small.data(), kCount, kFloat32, 1, *stream).ok();
      if (rank == 1) ok &= group.Receive(small.data(), kCount, kFloat32, 0, *stream).ok();
      ok &= group.Barrier(*stream).ok();
    };
    const auto steps = [&] {
      for (int i = 0; i < 20; ++i) step();
    };
    step();  // scratch grows here, for which the host waits
    ok &= stream->Synchronize().ok();
    // Warm up with the queues at their deepest, so that the high-water mark does not depend on
    // timing.
    ok &= device::Block(*stream, gate).ok();
    steps();
    meet.arrive_and_wait();
    gate.Open();
    ok &= stream->Synchronize().ok();
    meet.arrive_and_wait();
    if (rank == 0) begin();
    meet.arrive_and_wait();
    for (int round = 0; round < 10; ++round) {
      steps();
      ok &= stream->Synchronize().ok();
    }
    meet.arrive_and_wait();
    if (rank == 0) end();
    EXPECT_TRUE(ok);
    meet.arrive_and_wait();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_STEADY_STATE_H_
