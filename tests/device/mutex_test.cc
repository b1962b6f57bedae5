#include "brigade/device/threads/mutex.h"

#include <chrono>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace brigade::device {
namespace {

struct Counter {
  Mutex mutex;
  CondVar changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
};

TEST(MutexTest, AdmitsOneThreadAtATime) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < 10000; ++i) {
        MutexLock lock(counter.mutex);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.value, 40000);
}

// Were the mutex still held after Unlock, the second thread would never end.
TEST(MutexTest, IsFreeBetweenUnlockAndLock) {
  Counter counter;
  MutexLock lock(counter.mutex);
  lock.Unlock();
  std::thread([&counter] {
    MutexLock other(counter.mutex);
    counter.value = 1;
  }).join();
  lock.Lock();
  EXPECT_EQ(counter.value, 1);
}

TEST(MutexTest, MayEndItsScopeUnlocked) {
  Counter counter;
  {
    MutexLock lock(counter.mutex);
    lock.Unlock();
  }
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.value, 0);
}

TEST(CondVarTest, PassesTurnsBetweenThreads) {
  Counter counter;
  constexpr int kTurns = 100;
  const auto play = [&counter](int parity) {
    for (int turn = parity; turn < kTurns; turn += 2) {
      MutexLock lock(counter.mutex);
      while (counter.value != turn) counter.changed.Wait(counter.mutex);
      ++counter.value;
      counter.changed.SignalAll();
    }
  };
  std::thread odd(play, 1);
  play(0);
  odd.join();
  MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.value, kTurns);
}

TEST(CondVarTest, ReportsThatTheTimeHasPassedAndHoldsTheMutexAgain) {
  Counter counter;
  MutexLock lock(counter.mutex);
  const auto begin = std::chrono::steady_clock::now();
  while (!counter.changed.WaitWithTimeout(counter.mutex, absl::Milliseconds(20))) {
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(20));
  while (!counter.changed.WaitWithDeadline(counter.mutex, begin)) {
  }
  counter.value = 1;
}

TEST(CondVarTest, WaitsForASignalForEver) {
  Counter counter;
  std::thread signaller;
  {
    MutexLock lock(counter.mutex);
    signaller = std::thread([&counter] {
      MutexLock other(counter.mutex);
      counter.value = 1;
      counter.changed.Signal();
    });
    bool timed_out = false;
    while (counter.value == 0) {
      timed_out = counter.changed.WaitWithTimeout(counter.mutex, absl::InfiniteDuration());
    }
    EXPECT_FALSE(timed_out);
  }
  signaller.join();
}

}  // namespace
}  // namespace brigade::device
