#include "brigade/collectives/engines/nccl/in_flight_monitor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/deadline.h"

namespace brigade::collectives {

absl::Status InFlightMonitor::Begin(device::Stream& stream) {
  device::MutexLock lock(mutex_);
  if (next_.begin == nullptr) {
    // An error stays in its place for Look.
    if (free_.empty()) static_cast<void>(Reclaim());
    if (free_.empty()) {
      BRIGADE_ASSIGN_OR_RETURN(auto begin, context_.CreateEvent("collective begins"));
      BRIGADE_ASSIGN_OR_RETURN(auto end, context_.CreateEvent("collective ends"));
      // Each list has room for all, so that moving between them allocates nothing.
      if (++entries_ > free_.capacity()) free_.reserve(2 * entries_);
      pending_.reserve(free_.capacity());
      Entry entry;
      entry.begin = std::move(begin);
      entry.end = std::move(end);
      free_.push_back(std::move(entry));
    }
    next_ = std::move(free_.back());
    free_.pop_back();
  }
  return stream.Record(*next_.begin);
}

absl::Status InFlightMonitor::End(const Collective& collective, device::Stream& stream) {
  device::MutexLock lock(mutex_);
  BRIGADE_RETURN_IF_ERROR(stream.Record(*next_.end));
  next_.collective = {collective.signature, collective.sequence};
  next_.peer = collective.peer;
  next_.deadline = Clock::time_point::max();
  pending_.push_back(std::exchange(next_, Entry()));
  return absl::OkStatus();
}

absl::Status InFlightMonitor::Reclaim() {
  absl::Status error;
  auto entry = pending_.begin();
  for (; entry != pending_.end(); ++entry) {
    const absl::StatusOr<bool> ended = entry->end->Peek();
    if (!ended.ok()) {
      error =
          absl::Status(ended.status().code(), absl::StrCat("rank ", rank_, " cannot complete ",
                                                           ToString(entry->collective.signature),
                                                           ": ", ended.status().message()));
      break;
    }
    if (!*ended) break;
    free_.push_back(std::move(*entry));
  }
  pending_.erase(pending_.begin(), entry);
  return error;
}

absl::Status InFlightMonitor::Look(
    absl::FunctionRef<bool(const Fingerprint& call)> has_other_deadline) {
  device::MutexLock lock(mutex_);
  BRIGADE_RETURN_IF_ERROR(Reclaim());
  if (pending_.empty()) return absl::OkStatus();
  Entry& head = pending_.front();
  const Clock::time_point now = Clock::now();
  if (head.deadline == Clock::time_point::max()) {
    const absl::StatusOr<bool> begun = head.begin->Peek();
    if (begun.ok() && *begun) head.deadline = device::DeadlineAfter(timeout_);
  }
  if (now < head.deadline || has_other_deadline(head.collective)) return absl::OkStatus();
  const bool send = head.collective.signature.kind == CollectiveKind::kSend;
  return absl::DeadlineExceededError(
      absl::StrCat(Describe(rank_, head.collective), ", which has not ended within ",
                   absl::FormatDuration(timeout_),
                   send ? absl::StrCat(", with rank ", head.peer, " on the other side") : ""));
}

bool InFlightMonitor::empty() {
  device::MutexLock lock(mutex_);
  return pending_.empty();
}

}  // namespace brigade::collectives
