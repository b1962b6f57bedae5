#ifndef BRIGADE_TESTS_COLLECTIVES_RANKS_H_
#define BRIGADE_TESTS_COLLECTIVES_RANKS_H_

// Groups of ranks in one process, a thread each, for tests of collectives.

#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/context.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives {

inline constexpr precision::DType kFloat32 = precision::DType::kFloat32;

// Options of sums by an algorithm, rounded once where it can do that.
inline ReduceOptions By(Algorithm algorithm) {
  return {.reduction =
              algorithm == Algorithm::kDirect ? Reduction::kRoundedOnce : Reduction::kRoundedPerHop,
          .algorithm = algorithm};
}

// What one rank has. Destroyed in the thread that used it, in the order that users would.
struct Rank {
  int rank = 0;
  int size = 0;
  std::unique_ptr<device::Context> context;
  std::unique_ptr<device::Stream> stream;
  std::unique_ptr<Communicator> communicator;
  std::barrier<>* all_ranks = nullptr;  // of OnRanks
  // Made of `communicator`, for what the body makes with them.
  std::vector<std::unique_ptr<Communicator>> groups = {};

  // Waits for the other ranks of OnRanks outside of the communicator. When a collective is over for
  // this rank, another one may still be in it, and would get an error that comes next.
  void AwaitOthers() const { all_ranks->arrive_and_wait(); }
};

struct RanksOptions {
  int size = 2;
  absl::Duration timeout = absl::Seconds(60);
  device::RandomDelay random_delay = {};
  device::RaceChecker* race_checker = nullptr;
  device::Tracer* tracer = nullptr;
  device::Device device = device::Cpu();
  // Rank r is on the device with the ordinal r.
  bool own_devices = false;
  // Of the communicators' topology; empty: they have none.
  std::vector<int> ranks_of_node = {};
};

// The communicators' options: every link is alike.
inline CommunicatorOptions OptionsOf(const RanksOptions& options) {
  CommunicatorOptions communicator;
  if (options.ranks_of_node.empty()) return communicator;
  Topology& topology = communicator.topology.emplace();
  topology.ranks_of_node = options.ranks_of_node;
  topology.inside = topology.between = {1e-6, 1e9};
  return communicator;
}

inline std::unique_ptr<device::Context> CreateRankContext(int rank, const RanksOptions& options) {
  device::ContextOptions context;
  context.device = options.device;
  if (options.own_devices) context.device.ordinal = rank;
  context.compute_threads = 1 + rank % 2;
  context.name = absl::StrCat("rank ", rank);
  context.random_delay = options.random_delay;
  context.random_delay.seed += static_cast<uint64_t>(rank);
  context.race_checker = options.race_checker;
  context.tracer = options.tracer;
  return device::Context::Create(context).value();
}

// Makes the engine of one rank, in its thread.
using CreateEngineFn =
    std::function<absl::StatusOr<std::unique_ptr<Engine>>(int rank, device::Context&)>;

inline CreateEngineFn ThreadEngines(const RanksOptions& options) {
  auto group = ThreadGroup::Create({options.size, options.timeout}).value();
  return [group](int rank, device::Context& context) { return group->Join(rank, context); };
}

// Runs body(Rank&) on a thread for each rank, and waits for all. AwaitOthers does not wait for a
// rank whose body is over.
inline void OnRanks(const RanksOptions& options, const CreateEngineFn& create_engine,
                    const std::function<void(Rank&)>& body) {
  std::barrier all_ranks(options.size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.size; ++rank) {
    threads.emplace_back([&, rank] {
      Rank self = {rank,    options.size, CreateRankContext(rank, options),
                   nullptr, nullptr,      &all_ranks};
      const absl::Cleanup over = [&] { all_ranks.arrive_and_drop(); };
      self.stream = self.context->CreateStream("compute").value();
      auto engine = create_engine(rank, *self.context);
      ASSERT_OK(engine);
      self.communicator =
          Communicator::Create(*std::move(engine), *self.context, OptionsOf(options)).value();
      body(self);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void OnThreads(const RanksOptions& options, const std::function<void(Rank&)>& body) {
  OnRanks(options, ThreadEngines(options), body);
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_RANKS_H_
