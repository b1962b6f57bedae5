#include "brigade/device/memory_stats.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(MemoryStatsTest, CountsBytesByPurposeAndInTotal) {
  MemoryStats stats;
  stats.Add(Purpose::kParameters, 100);
  stats.Add(Purpose::kScratch, 30);
  stats.Remove(Purpose::kParameters, 40);
  EXPECT_EQ(stats.current_bytes(Purpose::kParameters), 60);
  EXPECT_EQ(stats.current_bytes(Purpose::kScratch), 30);
  EXPECT_EQ(stats.current_bytes(Purpose::kGradients), 0);
  EXPECT_EQ(stats.current_bytes(), 90);
  EXPECT_EQ(stats.peak_bytes(Purpose::kParameters), 100);
  EXPECT_EQ(stats.peak_bytes(), 130);
}

TEST(MemoryStatsTest, PeakOfTheTotalIsOneMomentsNotTheSumOfPeaks) {
  MemoryStats stats;
  stats.Add(Purpose::kGradients, 50);
  stats.Remove(Purpose::kGradients, 50);
  stats.Add(Purpose::kActivations, 60);
  EXPECT_EQ(stats.peak_bytes(), 60);
}

TEST(MemoryStatsTest, ResetPeaksStartsFromTheCurrentValues) {
  MemoryStats stats;
  stats.Add(Purpose::kCommunication, 80);
  stats.Remove(Purpose::kCommunication, 70);
  stats.ResetPeaks();
  EXPECT_EQ(stats.peak_bytes(Purpose::kCommunication), 10);
  EXPECT_EQ(stats.peak_bytes(), 10);
}

TEST(MemoryStatsTest, SaysInWordsWhatIsInUse) {
  MemoryStats stats;
  EXPECT_EQ(stats.ToString(), "nothing");
  stats.Add(Purpose::kOptimizerState, 12);
  stats.Add(Purpose::kParameters, 4);
  EXPECT_EQ(stats.ToString(), "parameters 4, optimizer_state 12");
}

TEST(MemoryStatsTest, AddsUpFromManyThreads) {
  MemoryStats stats;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&stats] {
      for (int i = 0; i < 1000; ++i) {
        stats.Add(Purpose::kScratch, 3);
        stats.Remove(Purpose::kScratch, 2);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(stats.current_bytes(), 4000);
}

}  // namespace
}  // namespace brigade::device
