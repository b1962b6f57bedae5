#ifndef BRIGADE_DEVICE_CPU_TASK_QUEUE_H_
#define BRIGADE_DEVICE_CPU_TASK_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "brigade/device/cpu/event_record.h"
#include "brigade/device/internal/task.h"

namespace brigade::device::internal {

class QueueSegment;

// One place in a CPU stream's queue. Work, list and name lie behind it in the same segment.
struct Task {
  enum class Kind { kWork, kRecord, kWait };

  Kind kind = Kind::kWork;
  absl::string_view name;          // of the operation; of the event for kWait
  const TaskType* type = nullptr;  // kWork
  void* work = nullptr;            // kWork; whoever runs or skips it destroys it
  const void* list = nullptr;      // kWork
  size_t items = 0;                // kWork
  EventRecordRef record;           // kRecord, kWait

  Task* next = nullptr;
  QueueSegment* segment = nullptr;
};

// First in, first out, in segments of raw memory that are used again: it allocates only to rise
// above its high-water mark, and never refuses.
//
// Threads      The caller's lock guards every call. The front task may be used without it, until
//              PopFront.
class TaskQueue {
 public:
  TaskQueue();
  ~TaskQueue();  // must be empty
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // Moves `work` in and copies list and name.
  void PushWork(absl::string_view name, const TaskType& type, void* work, const void* list,
                size_t items);
  void PushEvent(Task::Kind kind, absl::string_view name, EventRecordRef record);

  bool empty() const { return first_ == nullptr; }
  Task& front() { return *first_; }
  void PopFront();

  int64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  Task* Push(size_t bytes);  // room for a Task with `bytes` behind it
  QueueSegment* SegmentFor(size_t bytes);

  std::vector<std::unique_ptr<QueueSegment>> segments_;  // all of them
  QueueSegment* tail_ = nullptr;                         // where the next task goes if it fits
  Task* first_ = nullptr;
  Task* last_ = nullptr;
  int64_t capacity_bytes_ = 0;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CPU_TASK_QUEUE_H_
