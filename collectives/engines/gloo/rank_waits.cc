#include "brigade/collectives/engines/gloo/rank_waits.h"

#include <algorithm>

#include "brigade/collectives/engines/gloo/failure_detector.h"

namespace brigade::collectives::internal {

void RankWaits::Add(const FailureDetector& group) {
  device::MutexLock lock(mutex_);
  groups_.push_back(&group);
}

void RankWaits::Remove(const FailureDetector& group) {
  device::MutexLock lock(mutex_);
  groups_.erase(std::remove(groups_.begin(), groups_.end(), &group), groups_.end());
}

absl::Duration RankWaits::Elsewhere(const FailureDetector& group) const {
  device::MutexLock lock(mutex_);
  absl::Duration longest;
  for (const FailureDetector* const other : groups_) {
    if (other != &group) longest = std::max(longest, other->WaitLeft());
  }
  return longest;
}

}  // namespace brigade::collectives::internal
