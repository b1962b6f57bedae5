#ifndef BRIGADE_DEVICE_THREADS_TASK_THREAD_H_
#define BRIGADE_DEVICE_THREADS_TASK_THREAD_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device {

// A thread that runs one task after another, and is there before the first: so a task cannot fail
// for want of a thread.
//
// Threads      Calls from one thread at a time; never from a task.
class TaskThread {
 public:
  // ResourceExhausted if the system refuses.
  static absl::StatusOr<std::unique_ptr<TaskThread>> Create();
  // Waits for the task.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Runs a task. Waits for the one before, if it has not ended.
  void Start(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether all tasks have ended; what they have written is then seen.
  bool is_idle() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, after waiting for it for at most so long.
  bool WaitFor(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wait() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  TaskThread() = default;

  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ || task_; }

  mutable Mutex mutex_;
  CondVar changed_;
  // The next one, if there is one.
  std::function<void()> task_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_THREADS_TASK_THREAD_H_
