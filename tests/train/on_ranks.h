#ifndef BRIGADE_TESTS_TRAIN_ON_RANKS_H_
#define BRIGADE_TESTS_TRAIN_ON_RANKS_H_

#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/train/trainer.h"

namespace brigade::train {

// Each rank of a group calls it, on a thread of its own, with what its Trainer is made with.
inline void OnRanks(
    int ranks,
    absl::FunctionRef<void(const collectives::LaunchInfo&, const TrainerOptions&)> call) {
  const auto group = collectives::ThreadGroup::Create({.size = ranks}).value();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      collectives::LaunchInfo launch_info;
      launch_info.rank = rank;
      launch_info.size = ranks;
      call(launch_info, {.group = group});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace brigade::train

#endif  // BRIGADE_TESTS_TRAIN_ON_RANKS_H_
