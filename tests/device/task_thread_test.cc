#include "brigade/device/threads/task_thread.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(TaskThreadTest, RunsOneTaskAfterAnotherInAThreadOfItsOwn) {
  auto thread = TaskThread::Create().value();
  EXPECT_TRUE(thread->is_idle());
  thread->Wait();
  // Without a lock: what a task has written is seen by the next one, and once it is idle.
  std::vector<std::thread::id> ids;
  for (int i = 0; i < 100; ++i) {
    thread->Start([&ids] { ids.push_back(std::this_thread::get_id()); });
  }
  thread->Wait();
  EXPECT_TRUE(thread->is_idle());
  ASSERT_EQ(ids.size(), 100u);
  EXPECT_NE(ids[0], std::this_thread::get_id());
  for (const std::thread::id id : ids) EXPECT_EQ(id, ids[0]);
}

TEST(TaskThreadTest, IsNotIdleWhileATaskRuns) {
  auto thread = TaskThread::Create().value();
  Gate gate;
  bool ended = false;
  thread->Start([&] {
    gate.Pass();
    ended = true;
  });
  gate.AwaitArrival();
  EXPECT_FALSE(thread->is_idle());
  EXPECT_FALSE(thread->WaitFor(absl::ZeroDuration()));
  EXPECT_FALSE(thread->WaitFor(absl::Milliseconds(2)));
  gate.Open();
  EXPECT_TRUE(thread->WaitFor(absl::InfiniteDuration()));
  EXPECT_TRUE(ended);
}

TEST(TaskThreadTest, ItsEndWaitsForTheTask) {
  auto thread = TaskThread::Create().value();
  Gate gate;
  bool ended = false;
  thread->Start([&] {
    gate.Pass();
    ended = true;
  });
  gate.AwaitArrival();
  const std::jthread opener([&gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.Open();
  });
  thread.reset();
  EXPECT_TRUE(ended);
}

// What a task holds is let go with it.
TEST(TaskThreadTest, KeepsNothingOfATask) {
  auto thread = TaskThread::Create().value();
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  thread->Start([held = std::move(held)] {});
  thread->Wait();
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace brigade::device
