#include "brigade/collectives/engines/threads/rendezvous.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/threads/deadline.h"
#include "brigade/device/threads/spin.h"

namespace brigade::collectives {
namespace {

// For a range-based loop over the ranks whose bits are set, in ascending order.
class BitsOf {
 public:
  explicit BitsOf(uint64_t ranks) : ranks_(ranks) {}

  class Iterator {
   public:
    explicit Iterator(uint64_t left) : left_(left) {}
    int operator*() const { return std::countr_zero(left_); }
    Iterator& operator++() {
      left_ &= left_ - 1;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return left_ != other.left_; }

   private:
    uint64_t left_;
  };
  Iterator begin() const { return Iterator(ranks_); }
  Iterator end() const { return Iterator(0); }

 private:
  const uint64_t ranks_;
};

}  // namespace

Rendezvous::Rendezvous(int size)
    : everybody_(~Ranks{0} >> (64 - size)),
      sleepers_(static_cast<size_t>(size)),
      arrivals_(static_cast<size_t>(size)),
      partners_(static_cast<size_t>(size), kAll),
      results_(static_cast<size_t>(size)) {}

absl::Status Rendezvous::Meet(int rank, int partner, const Arrival& arrival, absl::Duration timeout,
                              Act act) {
  const auto self = static_cast<size_t>(rank);
  Sleeper& sleeper = sleepers_[self];
  device::MutexLock lock(mutex_);
  if (!broken_.ok()) return broken_;
  arrivals_[self] = arrival;
  partners_[self] = partner;
  sleeper.waits.store(true, std::memory_order_relaxed);
  Ranks& waiting = partner == kAll ? for_all_ : for_one_;
  waiting |= Only(rank);
  if (MissingFor(rank) == 0) {
    const Ranks ranks = partner == kAll ? everybody_ : Only(rank) | Only(partner);
    absl::Status result = Compare(ranks);
    if (result.ok()) result = act(arrivals_);
    waiting &= ~ranks;
    for (const int other : BitsOf(ranks)) {
      results_[static_cast<size_t>(other)] = result;
      sleepers_[static_cast<size_t>(other)].waits.store(false, std::memory_order_release);
    }
    lock.Unlock();
    for (const int other : BitsOf(ranks & ~Only(rank))) {
      sleepers_[static_cast<size_t>(other)].changed.Signal();
    }
    return result;
  }
  if (for_one_ != 0) {
    if (const absl::Status circle = FindCircle(rank); !circle.ok()) {
      BreakLocked(circle);
      return circle;
    }
  }
  lock.Unlock();
  // Ranks usually come within microseconds of each other.
  device::SpinUntil([&] { return !sleeper.waits.load(std::memory_order_acquire); });
  lock.Lock();
  const auto waits = [&] { return sleeper.waits.load(std::memory_order_relaxed); };
  const auto deadline = device::DeadlineAfter(timeout);
  bool is_late = false;
  while (waits() && broken_.ok() && !is_late) {
    if (const absl::Status left = LeftError(rank); !left.ok()) {
      BreakLocked(left);
      break;
    }
    is_late = sleeper.changed.WaitWithDeadline(mutex_, deadline);
  }
  if (waits() && is_late) BreakLocked(LateError(rank, timeout));
  return waits() ? broken_ : results_[self];
}

void Rendezvous::Leave(int rank) {
  device::MutexLock lock(mutex_);
  left_ |= Only(rank);
  for (Sleeper& each : sleepers_) each.changed.Signal();
}

void Rendezvous::Break(const absl::Status& error) {
  device::MutexLock lock(mutex_);
  BreakLocked(error);
}

void Rendezvous::BreakLocked(const absl::Status& error) {
  if (!broken_.ok()) return;
  broken_ = error;
  for (Sleeper& each : sleepers_) each.changed.Signal();
}

absl::Status Rendezvous::Compare(Ranks ranks) const {
  const int first = std::countr_zero(ranks);
  const Arrival& expected = arrivals_[static_cast<size_t>(first)];
  for (const int other : BitsOf(ranks & ~Only(first))) {
    const Arrival& found = arrivals_[static_cast<size_t>(other)];
    if (found.fingerprint == expected.fingerprint &&
        found.values.size() == expected.values.size()) {
      continue;
    }
    return MismatchError(first, expected.fingerprint, other, found.fingerprint);
  }
  return absl::OkStatus();
}

// The ranks that must arrive for `rank` to go on.
Rendezvous::Ranks Rendezvous::MissingFor(int rank) const {
  if (for_all_ & Only(rank)) return everybody_ & ~for_all_;
  if ((for_one_ & Only(rank)) == 0) return 0;
  const int partner = partners_[static_cast<size_t>(rank)];
  const bool is_there =
      (for_one_ & Only(partner)) != 0 && partners_[static_cast<size_t>(partner)] == rank;
  return is_there ? 0 : Only(partner);
}

// Those, the ranks that must arrive for them to go on, and so forth.
Rendezvous::Ranks Rendezvous::WaitedForBy(int rank) const {
  Ranks seen = 0;
  for (Ranks next = MissingFor(rank); next != 0; next &= ~seen) {
    const int other = std::countr_zero(next);
    seen |= Only(other);
    next |= MissingFor(other);
  }
  return seen;
}

// Names `rank` and one that waits for it, if it waits for itself by way of others.
absl::Status Rendezvous::FindCircle(int rank) const {
  const Ranks waited_for = WaitedForBy(rank);
  if ((waited_for & Only(rank)) == 0) return absl::OkStatus();
  for (const int other : BitsOf(waited_for)) {
    if ((MissingFor(other) & Only(rank)) == 0) continue;
    const int low = std::min(rank, other), high = std::max(rank, other);
    return MismatchError(low, arrivals_[static_cast<size_t>(low)].fingerprint, high,
                         arrivals_[static_cast<size_t>(high)].fingerprint);
  }
  return absl::OkStatus();
}

absl::Status Rendezvous::LeftError(int rank) const {
  const Ranks left = MissingFor(rank) & left_;
  if (left == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("rank ", std::countr_zero(left), " has left the group"));
}

absl::Status Rendezvous::LateError(int rank, absl::Duration timeout) const {
  std::vector<std::string> absent;
  for (const int other : BitsOf(WaitedForBy(rank) & ~for_all_ & ~for_one_)) {
    absent.push_back(absl::StrCat("rank ", other));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      absl::StrJoin(absent, ", "), " did not join within ", absl::FormatDuration(timeout), ": ",
      Describe(rank, arrivals_[static_cast<size_t>(rank)].fingerprint)));
}

}  // namespace brigade::collectives
