#include "brigade/device/race_checker/shadow.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace brigade::device::internal {
namespace {

template <typename Frontier, typename F>
void EraseIf(Frontier& frontier, F condition) {
  frontier.erase(std::remove_if(frontier.begin(), frontier.end(), condition), frontier.end());
}

}  // namespace

void Shadow::Add(uintptr_t begin, uintptr_t end, const PastAccess& access, const VectorClock& clock,
                 absl::FunctionRef<bool(int actor)> retired,
                 absl::FunctionRef<void(const PastAccess&)> conflict) {
  frontiers_.Update(begin, end, [&](uintptr_t, uintptr_t, Frontier& frontier) {
    EraseIf(frontier, [&](const PastAccess& past) {
      if (!past.OverFor(clock)) {
        if (past.write || access.write) conflict(past);
        return false;
      }
      // A read replaces reads only: an earlier write still conflicts with readers to come. That of
      // a retired actor could be kept for a better message, but their number has no bound.
      return access.write || (!past.write && (past.actor == access.actor || retired(past.actor)));
    });
    frontier.push_back(access);
  });
}

void Shadow::ForgetOver(const VectorClock& clock) {
  frontiers_.UpdateAll([&](Frontier& frontier) {
    EraseIf(frontier, [&](const PastAccess& past) { return past.OverFor(clock); });
  });
}

void Shadow::MoveTo(Shadow& other, uintptr_t begin, uintptr_t end) {
  frontiers_.ForEach(begin, end, [&](uintptr_t from, uintptr_t to, const Frontier& frontier) {
    other.frontiers_.Update(from, to,
                            [&](uintptr_t, uintptr_t, Frontier& target) { target = frontier; });
  });
  Forget(begin, end);
}

void Shadow::MarkActors(std::vector<bool>& used) const {
  frontiers_.ForEach(0, std::numeric_limits<uintptr_t>::max(),
                     [&](uintptr_t, uintptr_t, const Frontier& frontier) {
                       for (const PastAccess& past : frontier)
                         used[static_cast<size_t>(past.actor)] = true;
                     });
}

}  // namespace brigade::device::internal
