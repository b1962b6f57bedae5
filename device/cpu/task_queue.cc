#include "brigade/device/cpu/task_queue.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace brigade::device::internal {
namespace {

constexpr size_t kSegmentBytes = 64 * 1024;  // untuned: about 300 tasks

std::byte* AlignUp(std::byte* address, size_t alignment) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  return address + ((alignment - value % alignment) % alignment);
}

}  // namespace

// Raw memory filled from its beginning. Its tasks are popped in order, so it is free as a whole
// when the last one is.
class QueueSegment {
 public:
  explicit QueueSegment(size_t bytes)
      : memory(std::make_unique_for_overwrite<std::byte[]>(bytes)), bytes(bytes) {}

  std::byte* Fit(size_t wanted) const {
    std::byte* const at = AlignUp(memory.get() + used, alignof(Task));
    const auto offset = static_cast<size_t>(at - memory.get());
    return offset <= bytes && wanted <= bytes - offset ? at : nullptr;
  }

  const std::unique_ptr<std::byte[]> memory;
  const size_t bytes;
  size_t used = 0;
  int64_t tasks = 0;
};

TaskQueue::TaskQueue() = default;
TaskQueue::~TaskQueue() = default;

QueueSegment* TaskQueue::SegmentFor(size_t bytes) {
  if (tail_ != nullptr && tail_->Fit(bytes) != nullptr) return tail_;
  // The smallest that fits, so that a huge list finds the huge segment again.
  QueueSegment* best = nullptr;
  for (const auto& segment : segments_) {
    if (segment->tasks != 0 || segment->bytes < bytes) continue;
    if (best == nullptr || segment->bytes < best->bytes) best = segment.get();
  }
  if (best == nullptr) {
    segments_.push_back(std::make_unique<QueueSegment>(std::max(bytes, kSegmentBytes)));
    best = segments_.back().get();
  }
  best->used = 0;
  return best;
}

Task* TaskQueue::Push(size_t bytes) {
  const size_t wanted = alignof(Task) + sizeof(Task) + bytes;
  QueueSegment* const segment = SegmentFor(wanted);
  std::byte* const at = segment->Fit(sizeof(Task) + bytes);
  Task* const task = new (at) Task;
  task->segment = segment;
  segment->used = static_cast<size_t>(at - segment->memory.get()) + sizeof(Task) + bytes;
  ++segment->tasks;
  tail_ = segment;
  (last_ == nullptr ? first_ : last_->next) = task;
  last_ = task;
  return task;
}

void TaskQueue::PushWork(absl::string_view name, int64_t bytes, const TaskType& type, void* work,
                         const void* list, size_t items) {
  const size_t list_bytes = items * type.item_bytes;
  Task* const task =
      Push(type.alignment + type.size + type.item_alignment + list_bytes + name.size());
  auto* at = AlignUp(reinterpret_cast<std::byte*>(task + 1), type.alignment);
  type.move(work, at);
  task->work = at;
  at = AlignUp(at + type.size, type.item_alignment);
  if (list_bytes != 0) std::memcpy(at, list, list_bytes);
  task->list = at;
  at += list_bytes;
  if (!name.empty()) std::memcpy(at, name.data(), name.size());
  task->name = absl::string_view(reinterpret_cast<const char*>(at), name.size());
  task->bytes = bytes;
  task->type = &type;
  task->items = items;
}

void TaskQueue::PushEvent(Task::Kind kind, absl::string_view name, EventRecordRef record) {
  Task* const task = Push(name.size());
  auto* const at = reinterpret_cast<std::byte*>(task + 1);
  if (!name.empty()) std::memcpy(at, name.data(), name.size());
  task->kind = kind;
  task->name = absl::string_view(reinterpret_cast<const char*>(at), name.size());
  task->record = std::move(record);
}

void TaskQueue::PopFront() {
  Task* const task = first_;
  QueueSegment* const segment = task->segment;
  first_ = task->next;
  if (first_ == nullptr) last_ = nullptr;
  std::destroy_at(task);
  // An idle stream stays in one segment.
  if (--segment->tasks == 0) segment->used = 0;
}

}  // namespace brigade::device::internal
