#ifndef BRIGADE_TESTS_TRAIN_DELAYED_TRAINING_H_
#define BRIGADE_TESTS_TRAIN_DELAYED_TRAINING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/parallel/grid.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/trainings.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/rank_trainer.h"
#include "brigade/train/times/recorder.h"
#include "gtest/gtest.h"

namespace brigade::train {

// A training on so many ranks whose streams wait at random has the losses of `expected`, and the
// race checker sees nothing unordered.
inline void ExpectOrdered(const Training& training, int size, uint64_t seed, const Ran& expected) {
  ASSERT_OK(expected.status);
  const std::atomic<bool> stop = false;
  History history;
  Recorder recorder(nullptr);
  device::RaceChecker checker;
  const collectives::RanksOptions options = {.size = size,
                                             .random_delay = {.seed = seed, .max_delay_us = 50},
                                             .race_checker = &checker,
                                             .tracer = &recorder.tracer()};
  collectives::OnThreads(options, [&](collectives::Rank& self) {
    const auto grid = parallel::Grid::Create(training.job.config.grid, *self.communicator);
    ASSERT_OK(grid);
    const auto ranks = RankTrainer::Create(training.job, *training.task, **grid, *self.context,
                                           *self.stream, recorder);
    ASSERT_OK(ranks);
    ASSERT_OK((*ranks)->Train(self.rank == 0 ? &history : nullptr, stop));
    self.AwaitOthers();
  });
  for (const device::Race& race : checker.reports()) ADD_FAILURE() << race.message;
  ASSERT_EQ(history.steps().size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_EQ(history.steps()[step].loss, expected.losses[step]);
  }
}

}  // namespace brigade::train

#endif  // BRIGADE_TESTS_TRAIN_DELAYED_TRAINING_H_
