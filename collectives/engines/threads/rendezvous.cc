#include "brigade/collectives/engines/threads/rendezvous.h"

#include <algorithm>

#include "brigade/device/threads/spin.h"

namespace brigade::collectives {

Rendezvous::Rendezvous(int members)
    : arrivals_(static_cast<size_t>(members)), arrived_(static_cast<size_t>(members), 0) {}

absl::Status Rendezvous::Meet(int member, const Arrival& arrival, std::chrono::nanoseconds timeout,
                              absl::FunctionRef<absl::Status(absl::Span<const Arrival>)> act,
                              absl::FunctionRef<absl::Status(absl::Span<const int> absent)> late) {
  std::unique_lock lock(mutex_);
  if (!broken_.ok()) return broken_;
  const uint64_t round = round_.load(std::memory_order_relaxed);
  arrivals_[static_cast<size_t>(member)] = arrival;
  arrived_[static_cast<size_t>(member)] = 1;
  if (++count_ == arrivals_.size()) {
    result_ = act(arrivals_);
    count_ = 0;
    std::fill(arrived_.begin(), arrived_.end(), 0);
    round_.store(round + 1, std::memory_order_release);
    absl::Status result = result_;
    lock.unlock();
    changed_.notify_all();
    return result;
  }
  lock.unlock();
  // Members usually come within microseconds of each other.
  device::SpinUntil([&] { return IsOver(round); });
  lock.lock();
  const auto over = [&] { return IsOver(round) || !broken_.ok(); };
  if (!changed_.wait_for(lock, timeout, over)) {
    std::vector<int> absent;
    for (size_t i = 0; i < arrived_.size(); ++i) {
      if (arrived_[i] == 0) absent.push_back(static_cast<int>(i));
    }
    broken_ = late(absent);
    changed_.notify_all();
  }
  return IsOver(round) ? result_ : broken_;
}

void Rendezvous::Break(const absl::Status& error) {
  std::lock_guard lock(mutex_);
  if (broken_.ok()) broken_ = error;
  changed_.notify_all();
}

}  // namespace brigade::collectives
