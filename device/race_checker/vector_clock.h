#ifndef BRIGADE_DEVICE_RACE_CHECKER_VECTOR_CLOCK_H_
#define BRIGADE_DEVICE_RACE_CHECKER_VECTOR_CLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace brigade::device {

// What is known to be over: for every actor of a RaceChecker, how many of its ticks.
class VectorClock {
 public:
  uint64_t at(size_t actor) const { return actor < ticks_.size() ? ticks_[actor] : 0; }

  void Set(size_t actor, uint64_t tick) {
    if (actor >= ticks_.size()) ticks_.resize(actor + 1, 0);
    ticks_[actor] = tick;
  }

  // From now on knows what either knew.
  void Join(const VectorClock& other) {
    if (other.ticks_.size() > ticks_.size()) ticks_.resize(other.ticks_.size(), 0);
    for (size_t i = 0; i < other.ticks_.size(); ++i)
      ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }

 private:
  std::vector<uint64_t> ticks_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_RACE_CHECKER_VECTOR_CLOCK_H_
