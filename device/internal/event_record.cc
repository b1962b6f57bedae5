#include "brigade/device/internal/event_record.h"

#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/spin.h"

namespace brigade::device::internal {
namespace {

struct FreeList {
  Mutex mutex;
  EventRecord* first ABSL_GUARDED_BY(mutex) = nullptr;
};

FreeList& FreeRecords() {
  // Never destroyed: records may outlive main.
  static FreeList* const list = new FreeList;
  return *list;
}

}  // namespace

void EventRecord::Finish(absl::Status carried) {
  RecordWaiters waiters = FinishAndTakeWaiters(std::move(carried));
  while (RecordWaiter* const waiter = waiters.Take()) waiter->OnFinish();
}

RecordWaiters EventRecord::FinishAndTakeWaiters(absl::Status carried) {
  MutexLock lock(mutex_);
  carried_ = std::move(carried);
  finished_.store(true, std::memory_order_release);
  if (waiting_ > 0) reached_.SignalAll();
  return RecordWaiters(std::exchange(first_waiter_, nullptr));
}

bool EventRecord::AddWaiter(RecordWaiter& waiter) {
  MutexLock lock(mutex_);
  if (finished()) return false;
  waiter.next_waiter_ = first_waiter_;
  first_waiter_ = &waiter;
  return true;
}

absl::Status EventRecord::Wait() {
  if (!SpinUntil([this] { return finished(); })) {
    MutexLock lock(mutex_);
    ++waiting_;
    while (!finished()) reached_.Wait(mutex_);
    --waiting_;
  }
  return carried_;
}

EventRecordRef EventRecordRef::Create() {
  EventRecordRef ref;
  {
    MutexLock lock(FreeRecords().mutex);
    ref.record_ = FreeRecords().first;
    if (ref.record_ != nullptr) FreeRecords().first = ref.record_->next_free_;
  }
  if (ref.record_ == nullptr) ref.record_ = new EventRecord;
  ref.record_->references_.store(1, std::memory_order_relaxed);
  ref.record_->finished_.store(false, std::memory_order_relaxed);
  return ref;
}

void EventRecordRef::Release() {
  if (record_ == nullptr) return;
  if (record_->references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  record_->carried_ = absl::OkStatus();
  MutexLock lock(FreeRecords().mutex);
  record_->next_free_ = FreeRecords().first;
  FreeRecords().first = record_;
}

}  // namespace brigade::device::internal
