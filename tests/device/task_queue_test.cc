#include "brigade/device/cpu/task_queue.h"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "brigade/device/threads/thread_pool.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "gtest/gtest.h"

namespace brigade::device::internal {
namespace {

using ::brigade::testing::CountedAllocations;

struct Sum {
  int64_t* result;
  absl::Status operator()(absl::Span<const int32_t> list, ThreadPool&) const {
    for (const int32_t item : list) *result += item;
    return absl::OkStatus();
  }
};

void Push(TaskQueue& queue, int64_t* result, const std::vector<int32_t>& list,
          const std::string& name = "sum") {
  Sum work{result};
  queue.PushWork(name, 0, kListTask<int32_t, Sum>, &work, list.data(), list.size());
}

void RunFront(TaskQueue& queue, ThreadPool& pool) {
  Task& task = queue.front();
  EXPECT_TRUE(task.type->run(task.work, task.list, task.items, pool).ok());
  task.type->destroy(task.work);
  queue.PopFront();
}

TEST(TaskQueueTest, KeepsOrderNamesAndListsOfAllSizes) {
  ThreadPool pool(1);
  TaskQueue queue;
  std::vector<int64_t> results(200);
  std::vector<int64_t> expected;
  for (size_t i = 0; i < results.size(); ++i) {
    // Now and then one that fits into no ordinary segment.
    const size_t items = i % 50 == 49 ? 100'000 + i : i * 7;
    Push(queue, &results[i], std::vector<int32_t>(items, static_cast<int32_t>(i)),
         std::string(i % 13, 'n'));
    expected.push_back(static_cast<int64_t>(items * i));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(queue.front().name, std::string(i % 13, 'n'));
    RunFront(queue, pool);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(results, expected);
}

TEST(TaskQueueTest, StaysAtItsHighWaterMark) {
  ThreadPool pool(1);
  TaskQueue queue;
  int64_t sink = 0;
  const std::vector<int32_t> small(100), huge(200'000);
  const auto round = [&] {
    for (int i = 0; i < 500; ++i) Push(queue, &sink, i % 100 == 7 ? huge : small);
    while (!queue.empty()) RunFront(queue, pool);
  };
  round();
  const int64_t after_one = CountedAllocations();
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(CountedAllocations(), after_one);
}

TEST(TaskQueueTest, ReusesSegmentsWhileItIsNeverEmpty) {
  ThreadPool pool(1);
  TaskQueue queue;
  int64_t sink = 0;
  const std::vector<int32_t> list(64);
  const auto round = [&] {
    for (int i = 0; i < 1000; ++i) {
      Push(queue, &sink, list);
      RunFront(queue, pool);
    }
  };
  for (int i = 0; i < 10; ++i) Push(queue, &sink, list);
  round();
  const int64_t after_one = CountedAllocations();
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(CountedAllocations(), after_one);
  while (!queue.empty()) RunFront(queue, pool);
}

}  // namespace
}  // namespace brigade::device::internal
