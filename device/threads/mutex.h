#ifndef BRIGADE_DEVICE_THREADS_MUTEX_H_
#define BRIGADE_DEVICE_THREADS_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "brigade/device/threads/deadline.h"

namespace brigade::device {

// A std::mutex for clang's thread safety analysis: a member says by ABSL_GUARDED_BY(mutex_) which
// mutex guards it, a function by ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) that its caller holds it,
// and tools/thread_safety reports each access without the mutex.
//
// Mutex, MutexLock and CondVar have the interface of Abseil's. They are not Abseil's, because
// ThreadSanitizer does not see the synchronisation inside an Abseil that is installed as a library.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

  // Tells the analysis that this thread holds the mutex, where it cannot see that. Checks nothing.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;

  std::mutex mutex_;
};

// Holds a mutex from its construction to its destruction, except between Unlock and Lock.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {
    if (held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    held_ = false;
    mutex_.Unlock();
  }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// A std::condition_variable over a Mutex. A wait releases the mutex while it blocks, and may return
// without a signal; so it stands in a loop over its condition:
//
//   while (!ready_) changed_.Wait(mutex_);
//
// The analysis does not follow the mutex into a lambda; therefore no wait takes a predicate.
class CondVar {
 public:
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Adopted adopted(mutex);
    condition_.wait(adopted.lock());
  }

  // True if `deadline` has passed.
  bool WaitWithDeadline(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Adopted adopted(mutex);
    return condition_.wait_until(adopted.lock(), deadline) == std::cv_status::timeout;
  }

  // True if `timeout`, cut to a year, has passed.
  bool WaitWithTimeout(Mutex& mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return WaitWithDeadline(mutex, DeadlineAfter(timeout));
  }

  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

 private:
  // The std::unique_lock that std::condition_variable wants, over a mutex that is held before and
  // after.
  class Adopted {
   public:
    explicit Adopted(Mutex& mutex) : lock_(mutex.mutex_, std::adopt_lock) {}
    ~Adopted() { lock_.release(); }

    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  std::condition_variable condition_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_THREADS_MUTEX_H_
