#include "brigade/collectives/engines/threads/stream_monitor.h"

#include <bit>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/call_marks.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/deadline.h"

namespace brigade::collectives {
namespace {

using Clock = std::chrono::steady_clock;

std::string Names(uint64_t ranks) {
  std::vector<int> numbers;
  for (; ranks != 0; ranks &= ranks - 1) numbers.push_back(std::countr_zero(ranks));
  return absl::StrCat(numbers.size() == 1 ? "rank " : "ranks ", absl::StrJoin(numbers, ", "));
}

}  // namespace

absl::StatusOr<StreamMonitor::Entry*> StreamMonitor::Next(device::Context& context) {
  if (next_.empty()) {
    device::MutexLock lock(mutex_);
    if (free_.empty()) Reclaim();
    if (!free_.empty()) next_.splice(next_.begin(), free_, free_.begin());
  }
  if (next_.empty()) {
    Entry entry;
    for (int rank = 0; rank < size_; ++rank) {
      BRIGADE_ASSIGN_OR_RETURN(auto event, context.CreateEvent(kCallBegins));
      entry.begins.push_back(std::move(event));
    }
    next_.push_back(std::move(entry));
  }
  return &next_.front();
}

void StreamMonitor::Watch() {
  next_.front().deadline = Clock::time_point::max();
  device::MutexLock lock(mutex_);
  pending_.splice(pending_.end(), next_);
}

// A stream that has failed counts as one that is there: its error reaches the others by the events.
uint64_t StreamMonitor::Reached(const Entry& entry) const {
  uint64_t reached = 0;
  for (uint64_t ranks = entry.ranks; ranks != 0; ranks &= ranks - 1) {
    const int rank = std::countr_zero(ranks);
    const absl::StatusOr<bool> is_there = entry.begins[static_cast<size_t>(rank)]->Peek();
    if (!is_there.ok() || *is_there) reached |= uint64_t{1} << rank;
  }
  return reached;
}

// The oldest only, because those behind them have hardly begun.
void StreamMonitor::Reclaim() {
  while (!pending_.empty() && Reached(pending_.front()) == pending_.front().ranks) {
    free_.splice(free_.end(), pending_, pending_.begin());
  }
}

absl::Status StreamMonitor::Look() {
  device::MutexLock lock(mutex_);
  const Clock::time_point now = Clock::now();
  for (auto next = pending_.begin(); next != pending_.end();) {
    const auto entry = next++;
    const uint64_t reached = Reached(*entry);
    if (reached == entry->ranks) {
      free_.splice(free_.end(), pending_, entry);
      continue;
    }
    if (reached == 0) continue;
    if (entry->deadline == Clock::time_point::max()) {
      entry->deadline = device::DeadlineAfter(limit_);
    }
    if (now < entry->deadline) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        Describe(std::countr_zero(reached), entry->fingerprint), ", which the stream of ",
        Names(entry->ranks & ~reached), " has not reached within ", absl::FormatDuration(limit_)));
  }
  return absl::OkStatus();
}

}  // namespace brigade::collectives
