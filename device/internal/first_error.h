#ifndef BRIGADE_DEVICE_INTERNAL_FIRST_ERROR_H_
#define BRIGADE_DEVICE_INTERNAL_FIRST_ERROR_H_

#include <atomic>

#include "absl/status/status.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device::internal {

// The first error since the last Clear.
//
// Threads      Safe from any thread. Its mutex is held for the copy of a status only, so no call
//              waits for work or for another thread's call to the stream.
class FirstError {
 public:
  // Ignores an OK status, and an error that is not the first.
  void Keep(const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(mutex_);
    if (!error_.ok()) return;
    error_ = status;
    failed_.store(true, std::memory_order_release);
  }

  absl::Status Get() const {
    if (ok()) return absl::OkStatus();
    MutexLock lock(mutex_);
    return error_;
  }

  bool ok() const { return !failed_.load(std::memory_order_acquire); }

  void Clear() {
    MutexLock lock(mutex_);
    error_ = absl::OkStatus();
    failed_.store(false, std::memory_order_release);
  }

 private:
  mutable Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // Whether error_ is an error: spares a stream without one the mutex.
  std::atomic<bool> failed_{false};
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_INTERNAL_FIRST_ERROR_H_
