#ifndef BRIGADE_DEVICE_INTERNAL_EVENT_RECORD_H_
#define BRIGADE_DEVICE_INTERNAL_EVENT_RECORD_H_

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device::internal {

// What waits for a record without a thread, for one at a time.
class RecordWaiter {
 public:
  // The record has been finished, by this thread, which does not hold the record's mutex.
  virtual void OnFinish() = 0;

 protected:
  ~RecordWaiter() = default;

 private:
  friend class EventRecord;
  friend class RecordWaiters;

  RecordWaiter* next_waiter_ = nullptr;
};

// Those of one record, or of several, to be called.
class RecordWaiters {
 public:
  RecordWaiters() = default;
  explicit RecordWaiters(RecordWaiter* first) : first_(first) {}

  // Null if none is left.
  RecordWaiter* Take() {
    RecordWaiter* const first = first_;
    if (first != nullptr) first_ = std::exchange(first->next_waiter_, nullptr);
    return first;
  }

  void Add(RecordWaiters others) {
    while (RecordWaiter* const waiter = others.Take()) {
      waiter->next_waiter_ = first_;
      first_ = waiter;
    }
  }

 private:
  RecordWaiter* first_ = nullptr;
};

// One record of an event, as the host knows it: unfinished, then finished, with or without an
// error. Of the CPU's events it is the record itself; of CUDA's, the error that the record carries
// (CarriedErrors) or what a thread of the host waits for (CudaArrivals).
//
// Lifetime     Reference-counted by EventRecordRef. At zero it goes to a free list of the process
//              (not of a context: a wait in another context's queue may hold the last reference),
//              from which it is used again without an allocation.
// Threads      Safe from any thread.
class EventRecord {
 public:
  // Called once, when the stream reaches the record; Wait returns `carried`.
  void Finish(absl::Status carried);
  // The same, but leaves it to the caller to call those that wait without a thread.
  RecordWaiters FinishAndTakeWaiters(absl::Status carried);

  bool finished() const { return finished_.load(std::memory_order_acquire); }

  // Blocks until the record is finished; returns the error that it carries.
  absl::Status Wait();

  // False if the record is finished; otherwise `waiter`, which must live until then, is called when
  // it is.
  bool AddWaiter(RecordWaiter& waiter);

 private:
  friend class EventRecordRef;

  std::atomic<int> references_{0};
  std::atomic<bool> finished_{false};
  EventRecord* next_free_ = nullptr;

  Mutex mutex_;
  CondVar reached_;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  RecordWaiter* first_waiter_ ABSL_GUARDED_BY(mutex_) = nullptr;
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

#endif  // BRIGADE_DEVICE_INTERNAL_EVENT_RECORD_H_
