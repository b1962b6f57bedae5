#include "brigade/device/books.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(BooksTest, CountsBytesByPurposeAndInTotal) {
  Books books;
  books.Add(Purpose::kParameters, 100);
  books.Add(Purpose::kScratch, 30);
  books.Remove(Purpose::kParameters, 40);
  EXPECT_EQ(books.current_bytes(Purpose::kParameters), 60);
  EXPECT_EQ(books.current_bytes(Purpose::kScratch), 30);
  EXPECT_EQ(books.current_bytes(Purpose::kGradients), 0);
  EXPECT_EQ(books.current_bytes(), 90);
  EXPECT_EQ(books.peak_bytes(Purpose::kParameters), 100);
  EXPECT_EQ(books.peak_bytes(), 130);
}

TEST(BooksTest, PeakOfTheTotalIsOneMomentsNotTheSumOfPeaks) {
  Books books;
  books.Add(Purpose::kGradients, 50);
  books.Remove(Purpose::kGradients, 50);
  books.Add(Purpose::kActivations, 60);
  EXPECT_EQ(books.peak_bytes(), 60);
}

TEST(BooksTest, ResetPeaksStartsFromTheCurrentValues) {
  Books books;
  books.Add(Purpose::kCommunication, 80);
  books.Remove(Purpose::kCommunication, 70);
  books.ResetPeaks();
  EXPECT_EQ(books.peak_bytes(Purpose::kCommunication), 10);
  EXPECT_EQ(books.peak_bytes(), 10);
}

TEST(BooksTest, SaysInWordsWhatIsInUse) {
  Books books;
  EXPECT_EQ(books.ToString(), "nothing");
  books.Add(Purpose::kOptimizerState, 12);
  books.Add(Purpose::kParameters, 4);
  EXPECT_EQ(books.ToString(), "parameters 4, optimizer_state 12");
}

TEST(BooksTest, AddsUpFromManyThreads) {
  Books books;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&books] {
      for (int i = 0; i < 1000; ++i) {
        books.Add(Purpose::kScratch, 3);
        books.Remove(Purpose::kScratch, 2);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(books.current_bytes(), 4000);
}

}  // namespace
}  // namespace brigade::device
