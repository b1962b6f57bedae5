#ifndef BRIGADE_DEVICE_RACE_CHECKER_SHADOW_H_
#define BRIGADE_DEVICE_RACE_CHECKER_SHADOW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "brigade/device/race_checker/interval_map.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/race_checker/vector_clock.h"

namespace brigade::device::internal {

// One declared access, as history remembers it.
struct PastAccess {
  int actor = 0;
  // The actor's tick at the access.
  uint64_t tick = 0;
  bool write = false;
  // Of the whole access, also where history is cut into smaller intervals.
  uintptr_t begin = 0;
  uintptr_t end = 0;
  // For messages; its `write` is not used.
  std::shared_ptr<const Race::Side> side;

  bool OverFor(const VectorClock& clock) const {
    return tick <= clock.at(static_cast<size_t>(actor));
  }

  friend bool operator==(const PastAccess& a, const PastAccess& b) {
    return a.actor == b.actor && a.tick == b.tick && a.write == b.write && a.begin == b.begin &&
           a.end == b.end && a.side == b.side;
  }
};

// What memory remembers of its accesses: for each interval the frontier, those that a later access
// must be compared with.
//
// An access leaves the frontier when a write comes that is ordered after it (whatever conflicts
// with it later conflicts with that write as well), or a later access of its actor that conflicts
// with at least as much. So a frontier holds at most one read and one write per live actor.
class Shadow {
 public:
  // Compares `access` with the frontiers of [begin, end), calls conflict(past access) for each
  // unordered conflicting one, and adds it. `clock` is the actor's; retired(actor) says whether one
  // makes no accesses any more.
  void Add(uintptr_t begin, uintptr_t end, const PastAccess& access, const VectorClock& clock,
           absl::FunctionRef<bool(int actor)> retired,
           absl::FunctionRef<void(const PastAccess&)> conflict);

  void Forget(uintptr_t begin, uintptr_t end) { frontiers_.Erase(begin, end); }

  // Forgets accesses that are over for `clock`.
  void ForgetOver(const VectorClock& clock);

  // Moves the history of [begin, end) to `other`, which has none there.
  void MoveTo(Shadow& other, uintptr_t begin, uintptr_t end);

  // used[actor] = true for every actor in any frontier.
  void MarkActors(std::vector<bool>& used) const;

  size_t intervals() const { return frontiers_.size(); }

 private:
  using Frontier = absl::InlinedVector<PastAccess, 2>;

  IntervalMap<Frontier> frontiers_;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_RACE_CHECKER_SHADOW_H_
