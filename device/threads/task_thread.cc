#include "brigade/device/threads/task_thread.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "brigade/device/threads/deadline.h"
#include "brigade/device/threads/start_thread.h"

namespace brigade::device {

absl::StatusOr<std::unique_ptr<TaskThread>> TaskThread::Create() {
  auto self = absl::WrapUnique(new TaskThread());
  self->thread_ = StartThread([thread = self.get()] { thread->Loop(); });
  if (!self->thread_.joinable()) return absl::ResourceExhaustedError("no thread can be started");
  return self;
}

TaskThread::~TaskThread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

void TaskThread::Start(std::function<void()> task) {
  MutexLock lock(mutex_);
  while (HasWork()) changed_.Wait(mutex_);
  task_ = std::move(task);
  changed_.SignalAll();
}

bool TaskThread::is_idle() const {
  const MutexLock lock(mutex_);
  return !HasWork();
}

bool TaskThread::WaitFor(absl::Duration timeout) {
  const auto deadline = DeadlineAfter(timeout);
  const MutexLock lock(mutex_);
  bool is_over = false;
  while (HasWork() && !is_over) is_over = changed_.WaitWithDeadline(mutex_, deadline);
  return !HasWork();
}

void TaskThread::Wait() {
  const MutexLock lock(mutex_);
  while (HasWork()) changed_.Wait(mutex_);
}

void TaskThread::Loop() {
  MutexLock lock(mutex_);
  while (true) {
    while (!task_ && !stopping_) changed_.Wait(mutex_);
    if (!task_) return;
    running_ = true;
    std::function<void()> task = std::exchange(task_, nullptr);
    lock.Unlock();
    task();
    // What it holds is let go before it has ended.
    task = nullptr;
    lock.Lock();
    running_ = false;
    changed_.SignalAll();
  }
}

}  // namespace brigade::device
