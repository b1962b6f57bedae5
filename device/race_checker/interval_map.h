#ifndef BRIGADE_DEVICE_RACE_CHECKER_INTERVAL_MAP_H_
#define BRIGADE_DEVICE_RACE_CHECKER_INTERVAL_MAP_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace brigade::device::internal {

// Addresses to values, by disjoint half-open intervals. Everywhere else the value is T().
//
// T has ==, and empty() which is true for T(). Neighbours with equal values are one interval, so
// the size is that of what is stored, not of how it was written.
template <typename T>
class IntervalMap {
 public:
  // Calls update(begin, end, T&) for pieces that together are [begin, end).
  template <typename F>
  void Update(uintptr_t begin, uintptr_t end, F update) {
    if (begin >= end) return;
    SplitAt(begin);
    SplitAt(end);
    auto it = map_.lower_bound(begin);
    for (uintptr_t at = begin; at < end;) {
      if (it == map_.end() || it->first > at) {
        const uintptr_t gap_end = it == map_.end() ? end : std::min(end, it->first);
        it = map_.emplace_hint(it, at, Node{gap_end, T()});
      }
      const uintptr_t piece_end = it->second.end;
      update(at, piece_end, it->second.value);
      it = it->second.value.empty() ? map_.erase(it) : std::next(it);
      at = piece_end;
    }
    Merge(begin, end);
  }

  void Erase(uintptr_t begin, uintptr_t end) {
    Update(begin, end, [](uintptr_t, uintptr_t, T& value) { value = T(); });
  }

  // Calls visit(begin, end, const T&) for the stored pieces of [begin, end), cut to it.
  template <typename F>
  void ForEach(uintptr_t begin, uintptr_t end, F visit) const {
    auto it = map_.upper_bound(begin);
    if (it != map_.begin() && std::prev(it)->second.end > begin) --it;
    for (; it != map_.end() && it->first < end; ++it) {
      visit(std::max(begin, it->first), std::min(end, it->second.end), it->second.value);
    }
  }

  // Calls update(T&) for all that is stored.
  template <typename F>
  void UpdateAll(F update) {
    for (auto it = map_.begin(); it != map_.end();) {
      update(it->second.value);
      it = it->second.value.empty() ? map_.erase(it) : std::next(it);
    }
    if (!map_.empty()) Merge(map_.begin()->first, std::prev(map_.end())->second.end);
  }

  size_t size() const { return map_.size(); }

 private:
  struct Node {
    uintptr_t end;
    T value;
  };

  void SplitAt(uintptr_t at) {
    auto it = map_.lower_bound(at);
    if (it == map_.begin()) return;
    --it;
    if (it->second.end <= at) return;
    map_.emplace_hint(std::next(it), at, Node{it->second.end, it->second.value});
    it->second.end = at;
  }

  void Merge(uintptr_t begin, uintptr_t end) {
    auto it = map_.lower_bound(begin);
    if (it != map_.begin()) --it;
    while (it != map_.end() && it->first <= end) {
      const auto next = std::next(it);
      if (next != map_.end() && it->second.end == next->first &&
          it->second.value == next->second.value) {
        it->second.end = next->second.end;
        map_.erase(next);
      } else {
        it = next;
      }
    }
  }

  std::map<uintptr_t, Node> map_;  // by begin
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_RACE_CHECKER_INTERVAL_MAP_H_
