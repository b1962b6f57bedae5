#include "brigade/collectives/engines/threads/rendezvous.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/threads/spin.h"

namespace brigade::collectives {
namespace {

// Calls visit(rank) for each bit, in ascending order.
template <typename Visit>
void ForEachRank(uint64_t ranks, const Visit& visit) {
  for (; ranks != 0; ranks &= ranks - 1) visit(std::countr_zero(ranks));
}

}  // namespace

Rendezvous::Rendezvous(int size)
    : everybody_(~Ranks{0} >> (64 - size)),
      arrivals_(static_cast<size_t>(size)),
      members_(static_cast<size_t>(size)) {}

absl::Status Rendezvous::Meet(int rank, int partner, const Arrival& arrival,
                              std::chrono::nanoseconds timeout, Act act) {
  std::unique_lock lock(mutex_);
  if (!broken_.ok()) return broken_;
  Member& self = member(rank);
  arrivals_[static_cast<size_t>(rank)] = arrival;
  self.partner = partner;
  self.waits.store(true, std::memory_order_relaxed);
  Ranks& waiting = partner == kAll ? for_all_ : for_one_;
  waiting |= Only(rank);
  if (MissingFor(rank) == 0) {
    const Ranks ranks = partner == kAll ? everybody_ : Only(rank) | Only(partner);
    absl::Status result = Compare(ranks);
    if (result.ok()) result = act(arrivals_);
    waiting &= ~ranks;
    ForEachRank(ranks, [&](int other) {
      member(other).result = result;
      member(other).waits.store(false, std::memory_order_release);
    });
    lock.unlock();
    ForEachRank(ranks & ~Only(rank), [&](int other) { member(other).changed.notify_one(); });
    return result;
  }
  if (for_one_ != 0) {
    if (const absl::Status circle = FindCircle(rank); !circle.ok()) {
      BreakLocked(circle);
      return circle;
    }
  }
  lock.unlock();
  // Ranks usually come within microseconds of each other.
  device::SpinUntil([&] { return !self.waits.load(std::memory_order_acquire); });
  lock.lock();
  const auto over = [&] { return !self.waits.load(std::memory_order_relaxed) || !broken_.ok(); };
  if (!self.changed.wait_for(lock, timeout, over)) BreakLocked(LateError(rank, timeout));
  return self.waits.load(std::memory_order_relaxed) ? broken_ : self.result;
}

void Rendezvous::Break(const absl::Status& error) {
  std::lock_guard lock(mutex_);
  BreakLocked(error);
}

void Rendezvous::BreakLocked(const absl::Status& error) {
  if (!broken_.ok()) return;
  broken_ = error;
  for (Member& each : members_) each.changed.notify_one();
}

absl::Status Rendezvous::Compare(Ranks ranks) const {
  const int first = std::countr_zero(ranks);
  const Arrival& expected = arrivals_[static_cast<size_t>(first)];
  for (Ranks others = ranks & ~Only(first); others != 0; others &= others - 1) {
    const int other = std::countr_zero(others);
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
  const int partner = members_[static_cast<size_t>(rank)].partner;
  const bool is_there =
      (for_one_ & Only(partner)) != 0 && members_[static_cast<size_t>(partner)].partner == rank;
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
  for (Ranks others = waited_for; others != 0; others &= others - 1) {
    const int other = std::countr_zero(others);
    if ((MissingFor(other) & Only(rank)) == 0) continue;
    const int low = std::min(rank, other), high = std::max(rank, other);
    return MismatchError(low, arrivals_[static_cast<size_t>(low)].fingerprint, high,
                         arrivals_[static_cast<size_t>(high)].fingerprint);
  }
  return absl::OkStatus();
}

absl::Status Rendezvous::LateError(int rank, std::chrono::nanoseconds timeout) const {
  std::vector<std::string> absent;
  ForEachRank(WaitedForBy(rank) & ~for_all_ & ~for_one_,
              [&](int other) { absent.push_back(absl::StrCat("rank ", other)); });
  return absl::DeadlineExceededError(
      absl::StrCat(absl::StrJoin(absent, ", "), " did not join within ",
                   std::chrono::duration<double>(timeout).count(),
                   " s: ", Describe(rank, arrivals_[static_cast<size_t>(rank)].fingerprint)));
}

}  // namespace brigade::collectives
