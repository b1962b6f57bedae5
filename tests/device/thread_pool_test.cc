#include "brigade/device/threads/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(ThreadPoolTest, CallsEveryChunkOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t chunks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(chunks));
      pool.ParallelFor(chunks, [&](int64_t chunk) { ++calls[static_cast<size_t>(chunk)]; });
      for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, CutsRangesWithAShorterLastOne) {
  ThreadPool pool(3);
  for (const int64_t size : {0, 1, 31, 32, 33, 64, 1000}) {
    std::vector<int> covered(static_cast<size_t>(size));
    pool.ParallelRanges(size, 32, [&](int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      EXPECT_LE(end - begin, 32);
      for (int64_t i = begin; i < end; ++i) ++covered[static_cast<size_t>(i)];
    });
    for (const int count : covered) EXPECT_EQ(count, 1);
  }
}

TEST(ThreadPoolTest, RunsChunksAtTheSameTime) {
  ThreadPool pool(2);
  // Each chunk waits for the other: one thread alone would never end.
  std::atomic<int> arrived{0};
  pool.ParallelFor(2, [&](int64_t) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

TEST(ThreadPoolTest, ReturnsWhenTheSlowestChunkHas) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0}, returned{0};
  const std::thread::id caller = std::this_thread::get_id();
  pool.ParallelFor(2, [&](int64_t) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
    if (std::this_thread::get_id() != caller) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ++returned;
  });
  EXPECT_EQ(returned.load(), 2);
}

TEST(ThreadPoolTest, WakesWorkersThatHaveGoneToSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, [&](int64_t) {
      ++arrived;
      while (arrived.load() < 2) std::this_thread::yield();
    });
  }
}

TEST(ThreadPoolTest, ServesManyCallersAndNestedCalls) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        pool.ParallelFor(
            8, [&](int64_t) { pool.ParallelFor(4, [&](int64_t inner) { sum += inner; }); });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 4 * 50 * 8 * 6);
}

TEST(ThreadPoolTest, ServesTwoStreamsAtOnce) {
  ContextOptions options = CpuOptions();
  options.compute_threads = 2;
  auto context = CreateContext(options);
  auto a = context->CreateStream("a").value();
  auto b = context->CreateStream("b").value();
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 200; ++i) {
    for (Stream* stream : {a.get(), b.get()}) {
      ASSERT_OK(stream->Enqueue({"sum", {}}, [&sum](ThreadPool& pool) {
        EXPECT_EQ(pool.threads(), 2);
        pool.ParallelFor(16, [&](int64_t chunk) { sum += chunk; });
        return absl::OkStatus();
      }));
    }
  }
  ASSERT_OK(a->Synchronize());
  ASSERT_OK(b->Synchronize());
  EXPECT_EQ(sum.load(), 2 * 200 * 120);
}

}  // namespace
}  // namespace brigade::device
