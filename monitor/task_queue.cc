#include "brigade/monitor/task_queue.h"

#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "brigade/device/threads/deadline.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/start_thread.h"

namespace brigade::monitor {

// Shared with the thread, which may outlive the queue.
struct TaskQueue::State {
  explicit State(size_t most) : capacity(most) {}

  struct Task {
    std::function<void()> run;
    // Beside `capacity`.
    bool is_reserved = false;
  };

  void Run();

  const size_t capacity;
  mutable device::Mutex mutex;
  device::CondVar changed;
  std::deque<Task> tasks ABSL_GUARDED_BY(mutex);
  // How many of them.
  size_t reserved ABSL_GUARDED_BY(mutex) = 0;
  // Ever taken, and ended.
  int64_t posted ABSL_GUARDED_BY(mutex) = 0;
  int64_t ended ABSL_GUARDED_BY(mutex) = 0;
  int64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  // BeginClose's task is the last one.
  bool has_last ABSL_GUARDED_BY(mutex) = false;
  // The thread runs no more tasks.
  bool has_ended ABSL_GUARDED_BY(mutex) = false;
};

void TaskQueue::State::Run() {
  device::MutexLock lock(mutex);
  while (true) {
    while (tasks.empty() && !closing) changed.Wait(mutex);
    if (tasks.empty()) break;
    {
      const Task task = std::move(tasks.front());
      tasks.pop_front();
      reserved -= task.is_reserved ? 1 : 0;
      lock.Unlock();
      task.run();
    }
    lock.Lock();
    ++ended;
    changed.SignalAll();
  }
  has_ended = true;
  changed.SignalAll();
}

TaskQueue::TaskQueue(size_t capacity) : state_(std::make_shared<State>(capacity)) {
  std::thread thread = device::StartThread([state = state_] { state->Run(); });
  if (thread.joinable()) {
    thread.detach();
    return;
  }
  // The system has no thread left: no task is taken.
  device::MutexLock lock(state_->mutex);
  state_->closing = state_->has_ended = true;
}

TaskQueue::~TaskQueue() { Close(absl::ZeroDuration()); }

bool TaskQueue::Post(std::function<void()> task) { return Take(std::move(task), false); }
bool TaskQueue::PostReserved(std::function<void()> task) { return Take(std::move(task), true); }

bool TaskQueue::Take(std::function<void()> task, bool is_reserved) {
  // Under the mutex nobody does anything that may wait: tasks run and are destroyed without it.
  device::MutexLock lock(state_->mutex);
  const bool has_room = is_reserved || state_->tasks.size() - state_->reserved < state_->capacity;
  if (state_->closing || !has_room) {
    ++state_->dropped;
    return false;
  }
  state_->tasks.push_back({std::move(task), is_reserved});
  state_->reserved += is_reserved ? 1 : 0;
  ++state_->posted;
  state_->changed.SignalAll();
  return true;
}

bool TaskQueue::Drain(absl::Duration patience) {
  const auto deadline = device::DeadlineAfter(patience);
  device::MutexLock lock(state_->mutex);
  const int64_t all = state_->posted;
  while (state_->ended < all && !state_->has_ended) {
    if (state_->changed.WaitWithDeadline(state_->mutex, deadline)) return state_->ended >= all;
  }
  return state_->ended >= all;
}

void TaskQueue::BeginClose(std::function<void()> last) {
  device::MutexLock lock(state_->mutex);
  if (state_->closing) return;
  state_->closing = state_->has_last = true;
  state_->tasks.push_back({std::move(last)});
  ++state_->posted;
  state_->changed.SignalAll();
}

bool TaskQueue::Close(absl::Duration patience) {
  const auto deadline = device::DeadlineAfter(patience);
  std::deque<State::Task> left;
  device::MutexLock lock(state_->mutex);
  state_->closing = true;
  state_->changed.SignalAll();
  bool is_late = false;
  // The thread itself may have had no processor yet to end: without a task it holds nobody up. That
  // counts where patience is over already, as behind another queue that is stuck.
  const auto has_run = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    return state_->has_ended || state_->ended == state_->posted;
  };
  while (!has_run() && !is_late) {
    is_late = state_->changed.WaitWithDeadline(state_->mutex, deadline);
  }
  const auto unrun = static_cast<int64_t>(state_->tasks.size());
  state_->dropped += unrun;
  left.swap(state_->tasks);
  const bool is_last_unrun =
      unrun == 1 && state_->has_last && state_->ended + unrun == state_->posted;
  const bool ended = has_run() || is_last_unrun;
  // They may own what takes time to be destroyed.
  lock.Unlock();
  return ended;
}

int64_t TaskQueue::dropped() const {
  device::MutexLock lock(state_->mutex);
  return state_->dropped;
}

}  // namespace brigade::monitor
