#ifndef BRIGADE_MONITOR_TASK_QUEUE_H_
#define BRIGADE_MONITOR_TASK_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "brigade/device/requirements.h"

namespace brigade::monitor {

// A thread that runs tasks one after the other, for those who must not wait for any of them.
//
// Bounded      At most `capacity` tasks wait; one more is not taken, and counted. Beside them have
//              room those of PostReserved, which are few.
// Host waits   Post never waits for a task. A task that does not return, as a write to a disk that
//              is gone, costs its own queue alone: Close leaves such a thread behind.
// Errors       Where the system refuses a thread no task is taken.
// Threads      Post and Drain from any thread, Close from one, not from a task.
class TaskQueue {
 public:
  explicit TaskQueue(size_t capacity);
  // Closes without patience.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // False if there is no room, or the queue is closed: the task is destroyed. Else it will run,
  // unless Close gives up before. What it uses must be its own, or outlive the process.
  bool Post(std::function<void()> task);
  // The same, however many wait: false if the queue is closed.
  bool PostReserved(std::function<void()> task);

  // Waits until all tasks that were posted before have run; false if `patience` ends before.
  bool Drain(absl::Duration patience);

  // Takes no more tasks but this one, which has room and comes last. Again, or behind Close:
  // nothing.
  void BeginClose(std::function<void()> last);

  // Takes no more tasks, and waits until all have run; false if `patience` ends before: what waits
  // is destroyed unrun and counted, the one that runs goes on by itself. For the last one of
  // BeginClose alone it is true.
  bool Close(absl::Duration patience);

  // Tasks that were not taken, or not run.
  int64_t dropped() const;

 private:
  struct State;

  bool Take(std::function<void()> task, bool is_reserved);

  std::shared_ptr<State> state_;
};

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_TASK_QUEUE_H_
