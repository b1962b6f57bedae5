#include "brigade/device/internal/carried_errors.h"

#include <algorithm>
#include <utility>

#include "brigade/device/internal/messages.h"

namespace brigade::device::internal {

CarriedErrors::CarriedErrors(std::string stream_label, std::shared_ptr<uint32_t> flag)
    : stream_label_(std::move(stream_label)),
      flag_(std::move(flag)),
      // A word that other streams have used goes on counting.
      flags_wanted_(flag_ == nullptr ? 0 : *flag_),
      flags_settled_(flags_wanted_) {}

std::optional<uint32_t> CarriedErrors::Wait(const EventRecordRef& record, absl::string_view event,
                                            bool has_flag) {
  const MutexLock lock(mutex_);
  if (record->finished()) {
    const absl::Status carried = record->Wait();
    if (!carried.ok()) first_.Keep(ArrivedThrough(event, stream_label_, carried));
    return std::nullopt;
  }
  Entry& entry = Push();
  entry.record = record;
  entry.is_wait = true;
  entry.has_flag = has_flag;
  entry.event.assign(event.data(), event.size());
  if (has_flag) ++flags_wanted_;
  const uint32_t wanted = flags_wanted_;
  // It may have been finished meanwhile.
  if (entries_ == 1 && !record->AddWaiter(*this)) Settle();
  return wanted;
}

EventRecordRef CarriedErrors::Record() {
  // In this order: an error is kept before its entry goes.
  if (entries_.load(std::memory_order_acquire) == 0 && first_.ok()) return {};
  EventRecordRef record = EventRecordRef::Create();
  const MutexLock lock(mutex_);
  if (!first_.ok() || entries_ == 0) {
    record->Finish(first_.Get());
  } else {
    Push().record = record;
  }
  return record;
}

void CarriedErrors::Clear() {
  const MutexLock lock(mutex_);
  first_.Clear();
  arrived_ = absl::OkStatus();
}

CarriedErrors::Entry& CarriedErrors::Push() {
  if (entries_ == ring_.size()) {
    std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(front_), ring_.end());
    front_ = 0;
    ring_.resize(std::max<size_t>(16, 2 * ring_.size()));
  }
  if (entries_ == 0) self_ = shared_from_this();
  Entry& entry = ring_[(front_ + entries_) % ring_.size()];
  entry.is_wait = entry.has_flag = false;
  entries_.fetch_add(1, std::memory_order_release);
  return entry;
}

void CarriedErrors::OnFinish() {
  const MutexLock lock(mutex_);
  Settle();
}

void CarriedErrors::SettleFront(RecordWaiters& ready) {
  while (entries_ > 0) {
    Entry& entry = ring_[front_];
    if (entry.is_wait) {
      if (entry.record->AddWaiter(*this)) return;
      const absl::Status carried = entry.record->Wait();
      if (!carried.ok() && arrived_.ok()) {
        arrived_ = ArrivedThrough(entry.event, stream_label_, carried);
        first_.Keep(arrived_);
      }
      if (entry.has_flag) ++flags_settled_;
    } else {
      ready.Add(entry.record->FinishAndTakeWaiters(arrived_));
    }
    entry.record = {};
    front_ = (front_ + 1) % ring_.size();
    entries_.fetch_sub(1, std::memory_order_release);
  }
}

// Each waiter of a record that an entry holds is such an object.
void CarriedErrors::Settle() {
  CarriedErrors* touched = nullptr;
  RecordWaiters ready;
  CarriedErrors* errors = this;
  do {
    errors->SettleFront(ready);
    if (!errors->is_touched_) {
      errors->is_touched_ = true;
      errors->next_touched_ = std::exchange(touched, errors);
    }
    errors = static_cast<CarriedErrors*>(ready.Take());
  } while (errors != nullptr);
  while (touched != nullptr) {
    CarriedErrors& each = *touched;
    touched = each.next_touched_;
    each.is_touched_ = false;
    if (each.flag_ != nullptr) {
      std::atomic_ref<uint32_t>(*each.flag_).store(each.flags_settled_, std::memory_order_release);
    }
    if (each.entries_ == 0) std::shared_ptr<CarriedErrors>(std::move(each.self_)).reset();
  }
}

}  // namespace brigade::device::internal
