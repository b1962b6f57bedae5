#ifndef BRIGADE_DEVICE_CPU_TASK_QUEUE_H_
#define BRIGADE_DEVICE_CPU_TASK_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "brigade/device/internal/event_record.h"
#include "brigade/device/internal/task.h"

namespace brigade::device::internal {

class QueueSegment;

// One place in a CPU stream's queue. Work, list and name lie behind it in the same segment.
struct Task {
  enum class Kind { kWork, kRecord, kWait };

  Kind kind = Kind::kWork;
  // Of the operation (kWork) or of the event (kWait).
  absl::string_view name;

  // For kWork, what it reads and writes. The worker destroys `work` after it has run or skipped it.
  int64_t bytes = 0;
  const TaskType* type = nullptr;
  void* work = nullptr;
  const void* list = nullptr;
  size_t items = 0;

  // For kRecord and kWait.
  EventRecordRef record;

  Task* next = nullptr;
  QueueSegment* segment = nullptr;
};

// A first-in, first-out queue in segments of raw memory that are used again: it allocates only to
// exceed its high-water mark, and is never full.
//
// Threads      The caller's lock guards every call. The front task may be used without it, until
//              PopFront.
class TaskQueue {
 public:
  TaskQueue();
  // The queue must be empty.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // Moves `work` in and copies list and name.
  void PushWork(absl::string_view name, int64_t bytes, const TaskType& type, void* work,
                const void* list, size_t items);
  void PushEvent(Task::Kind kind, absl::string_view name, EventRecordRef record);

  bool empty() const { return first_ == nullptr; }
  Task& front() { return *first_; }
  void PopFront();

 private:
  // Makes room for a Task and for `bytes` behind it.
  Task* Push(size_t bytes);
  QueueSegment* SegmentFor(size_t bytes);

  std::vector<std::unique_ptr<QueueSegment>> segments_;
  // The segment that the next task goes to if it fits.
  QueueSegment* tail_ = nullptr;
  Task* first_ = nullptr;
  Task* last_ = nullptr;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CPU_TASK_QUEUE_H_
