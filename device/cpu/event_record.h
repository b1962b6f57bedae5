#ifndef BRIGADE_DEVICE_CPU_EVENT_RECORD_H_
#define BRIGADE_DEVICE_CPU_EVENT_RECORD_H_

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device::internal {

// One record of a CPU event: unfinished, then finished, with or without an error.
//
// Lifetime     Reference-counted by EventRecordRef. At zero it goes to a free list of the process
//              (not of a context: a wait in another context's queue may hold the last reference),
//              from which it is used again without an allocation.
// Threads      Safe from any thread.
class EventRecord {
 public:
  // Called once, when the stream reaches the record; Wait returns `carried`.
  void Finish(absl::Status carried);

  bool finished() const { return finished_.load(std::memory_order_acquire); }

  // Blocks until the record is finished; returns the error that it carries.
  absl::Status Wait();

 private:
  friend class EventRecordRef;

  std::atomic<int> references_{0};
  std::atomic<bool> finished_{false};
  EventRecord* next_free_ = nullptr;

  Mutex mutex_;
  CondVar reached_;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  // Written before finished_ is set, constant after.
  absl::Status carried_;
};

class EventRecordRef {
 public:
  // Empty.
  EventRecordRef() = default;
  static EventRecordRef Create();

  ~EventRecordRef() { Release(); }
  EventRecordRef(const EventRecordRef& other) : record_(other.record_) {
    if (record_ != nullptr) record_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  EventRecordRef(EventRecordRef&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)) {}
  EventRecordRef& operator=(EventRecordRef other) noexcept {
    std::swap(record_, other.record_);
    return *this;
  }

  explicit operator bool() const { return record_ != nullptr; }
  EventRecord* operator->() const { return record_; }

 private:
  void Release();

  EventRecord* record_ = nullptr;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CPU_EVENT_RECORD_H_
