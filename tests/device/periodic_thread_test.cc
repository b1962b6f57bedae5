#include "brigade/device/threads/periodic_thread.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/time/time.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/tests/device/testing.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(PeriodicThreadTest, CallsAgainAndAgainInAThreadOfItsOwn) {
  struct {
    Mutex mutex;
    CondVar changed;
    int calls ABSL_GUARDED_BY(mutex) = 0;
  } counter;
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<bool> elsewhere = true;
  const auto begin = std::chrono::steady_clock::now();
  PeriodicThread thread(absl::Milliseconds(2), [&] {
    if (std::this_thread::get_id() == here) elsewhere = false;
    MutexLock lock(counter.mutex);
    ++counter.calls;
    counter.changed.Signal();
  });
  MutexLock lock(counter.mutex);
  while (counter.calls < 5) counter.changed.Wait(counter.mutex);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(10));
  EXPECT_TRUE(elsewhere);
}

TEST(PeriodicThreadTest, StopEndsALongInterval) {
  bool called = false;
  PeriodicThread thread(absl::Hours(1), [&called] { called = true; });
  thread.Stop();
  thread.Stop();
  EXPECT_FALSE(called);
}

TEST(PeriodicThreadTest, StopWaitsForTheCallUnderWay) {
  Gate gate;
  bool ended = false;
  PeriodicThread thread(absl::ZeroDuration(), [&] {
    gate.Pass();
    ended = true;
  });
  gate.AwaitArrival();
  std::thread opener([&gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.Open();
  });
  thread.Stop();
  EXPECT_TRUE(ended);
  opener.join();
}

}  // namespace
}  // namespace brigade::device
