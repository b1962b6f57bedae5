// Ranks that meet over Gloo. Two threads play the processes.

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

struct Process {
  train::Outcome outcome;
  int reports = 0;
  bool left_after_report = false;
};

// Two ranks train; only the second is told to stop, if any. Without a folder they meet at a port.
std::array<Process, 2> Train(int64_t steps, bool stop, const std::string& folder = "") {
  Job job;
  job.model = {.layers = 1, .heads = 2, .width = 16, .context = 16};
  job.config =
      train::ParseConfig(R"({"train_batch_size": 2, "optimizer": {"type": "SGD"}})", 2).value();
  job.corpus = ReadLicences().value();
  job.steps = steps;

  const int port = folder.empty() ? collectives::testing::FreePort() : 1;
  std::atomic<bool> reported = false;
  std::array<Process, 2> all;
  const auto run = [&](int rank, Process& self) {
    const std::atomic<bool> stop_here = stop && rank == 1;
    const auto report = [&](const train::Outcome&) {
      ++self.reports;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      reported = true;
    };
    absl::StatusOr<train::Outcome> outcome =
        TrainAsProcess(job, {.launched = true, .rank = rank, .size = 2, .master_port = port},
                       {.stop = &stop_here, .report = report, .rendezvous_folder = folder});
    self.left_after_report = reported;
    EXPECT_OK(outcome);
    if (outcome.ok()) self.outcome = *std::move(outcome);
  };
  std::thread second([&] { run(1, all[1]); });
  run(0, all[0]);
  second.join();
  return all;
}

TEST(TrainAsProcessTest, OneRankReportsAndNoneLeavesBefore) {
  const auto [first, second] = Train(2, false);
  EXPECT_EQ(first.reports, 1);
  EXPECT_EQ(second.reports, 0);
  EXPECT_TRUE(second.left_after_report);
  EXPECT_FALSE(first.outcome.interrupted);
}

TEST(TrainAsProcessTest, RanksMeetInAFolderToo) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/meeting");
  std::filesystem::remove_all(folder);
  for (const Process& process : Train(2, false, folder)) {
    EXPECT_EQ(process.outcome.ranks.size(), 2u);
  }
}

TEST(TrainAsProcessTest, AllStopAfterTheSameStepWhenOneIsToldTo) {
  for (const Process& process : Train(1'000'000, true)) {
    EXPECT_TRUE(process.outcome.interrupted);
    ASSERT_EQ(process.outcome.ranks.size(), 2u);
    EXPECT_EQ(process.outcome.ranks[0].steps, process.outcome.ranks[1].steps);
    EXPECT_LT(process.outcome.ranks[0].steps, 10);
  }
}

}  // namespace
}  // namespace brigade::gpt
