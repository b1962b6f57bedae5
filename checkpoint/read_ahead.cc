#include "brigade/checkpoint/read_ahead.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/start_thread.h"

namespace brigade::checkpoint {
namespace {

struct Slot {
  std::unique_ptr<char[]> memory;
  ReadChunk chunk;
};

// Two slots that pass from a thread that fills them to one that empties them, in turn.
class Slots {
 public:
  explicit Slots(int64_t bytes) {
    for (Slot& slot : slots_) {
      slot.memory = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes));
    }
  }

  // Waits; null once nobody wants more.
  Slot* TakeEmpty() ABSL_LOCKS_EXCLUDED(mutex_) {
    device::MutexLock lock(mutex_);
    while (filled_ == emptied_ + slots_.size() && !is_closed_) changed_.Wait(mutex_);
    return is_closed_ ? nullptr : &slots_[filled_ % slots_.size()];
  }
  void PutFilled() ABSL_LOCKS_EXCLUDED(mutex_) {
    const device::MutexLock lock(mutex_);
    ++filled_;
    changed_.SignalAll();
  }
  // There is no more.
  void End() ABSL_LOCKS_EXCLUDED(mutex_) {
    const device::MutexLock lock(mutex_);
    has_ended_ = true;
    changed_.SignalAll();
  }

  // Waits; null once there is no more.
  const Slot* TakeFilled() ABSL_LOCKS_EXCLUDED(mutex_) {
    device::MutexLock lock(mutex_);
    while (filled_ == emptied_ && !has_ended_) changed_.Wait(mutex_);
    return filled_ == emptied_ ? nullptr : &slots_[emptied_ % slots_.size()];
  }
  void PutEmptied() ABSL_LOCKS_EXCLUDED(mutex_) {
    const device::MutexLock lock(mutex_);
    ++emptied_;
    changed_.SignalAll();
  }
  // Nobody wants more.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    const device::MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.SignalAll();
  }

 private:
  std::array<Slot, 2> slots_;
  device::Mutex mutex_;
  device::CondVar changed_;
  size_t filled_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t emptied_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::Status ReadAhead(absl::Span<const ReadRange> ranges, int64_t chunk_bytes,
                       absl::FunctionRef<absl::Status(const ReadRange& part, char* to)> read,
                       absl::FunctionRef<absl::Status(const ReadChunk& chunk)> use) {
  if (chunk_bytes <= 0 || chunk_bytes % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes is ", chunk_bytes, ", must be a multiple of 8 above 0"));
  }
  int64_t longest = 0;
  for (const ReadRange& range : ranges) longest = std::max(longest, range.bytes);
  Slots slots(std::min(chunk_bytes, longest));
  std::thread reader = device::StartThread([&] {
    for (size_t r = 0; r < ranges.size(); ++r) {
      for (int64_t at = 0; at < ranges[r].bytes; at += chunk_bytes) {
        Slot* const slot = slots.TakeEmpty();
        if (slot == nullptr) return;
        const int64_t bytes = std::min(chunk_bytes, ranges[r].bytes - at);
        char* const to = slot->memory.get();
        const absl::Status status = read({ranges[r].source, ranges[r].offset + at, bytes}, to);
        slot->chunk = {r, at, absl::string_view(to, static_cast<size_t>(bytes))};
        if (!status.ok()) slot->chunk.bytes = status;
        slots.PutFilled();
        if (!status.ok()) break;
      }
    }
    slots.End();
  });
  if (!reader.joinable()) return absl::ResourceExhaustedError("no thread can be started");
  absl::Status status;
  while (const Slot* const slot = slots.TakeFilled()) {
    status = use(slot->chunk);
    if (!status.ok()) break;
    slots.PutEmptied();
  }
  slots.Close();
  reader.join();
  return status;
}

}  // namespace brigade::checkpoint
