// Ranks that meet over Gloo. Two threads play the processes.

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/tests/collectives/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

constexpr int kRanks = 2;

TEST(TrainAsProcessTest, OneRankReportsAndNoneLeavesBefore) {
  Job job;
  job.model = {.layers = 1, .heads = 2, .width = 16, .context = 16};
  job.config =
      ParseConfig(R"({"train_batch_size": 2, "optimizer": {"type": "SGD"}})", kRanks).value();
  job.corpus = ReadLicences().value();
  job.steps = 2;

  const int port = collectives::testing::FreePort();
  const std::atomic<bool> stop = false;
  std::array<int, kRanks> reports = {};
  std::atomic<bool> reported = false;
  std::array<bool, kRanks> left_after = {};
  std::vector<std::thread> processes;
  for (int rank = 0; rank < kRanks; ++rank) {
    processes.emplace_back([&, rank] {
      Recorder recorder(nullptr);
      const auto report = [&](const Outcome& outcome) {
        EXPECT_EQ(outcome.ranks.size(), size_t{kRanks});
        ++reports[rank];
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        reported = true;
      };
      EXPECT_OK(
          TrainAsProcess(job, {.launched = true, .rank = rank, .size = kRanks, .master_port = port},
                         {nullptr, recorder, stop, report}));
      left_after[rank] = reported;
    });
  }
  for (std::thread& process : processes) process.join();
  EXPECT_EQ(reports, (std::array<int, kRanks>{1, 0}));
  EXPECT_EQ(left_after, (std::array<bool, kRanks>{true, true}));
}

}  // namespace
}  // namespace brigade::gpt
