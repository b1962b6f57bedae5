#ifndef BRIGADE_DEVICE_THREADS_STEADY_TIME_H_
#define BRIGADE_DEVICE_THREADS_STEADY_TIME_H_

#include <chrono>

#include "absl/time/time.h"

namespace brigade::device {

// A moment on the steady clock, which nobody sets, for deadlines: by the clock of the day a wait
// ends early, or never, where that clock is set or a machine sleeps. A type of its own, since an
// absl::Time of one clock compares with one of the other.
//
// As absl::Time it has infinite ends, and sums that would pass them stay there.
class SteadyTime {
 public:
  static SteadyTime Now() {
    return SteadyTime(absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()));
  }
  static constexpr SteadyTime InfiniteFuture() { return SteadyTime(absl::InfiniteDuration()); }
  static constexpr SteadyTime InfinitePast() { return SteadyTime(-absl::InfiniteDuration()); }

  friend SteadyTime operator+(SteadyTime time, absl::Duration more) {
    return SteadyTime(time.since_start_ + more);
  }
  friend SteadyTime operator-(SteadyTime time, absl::Duration less) {
    return SteadyTime(time.since_start_ - less);
  }
  friend absl::Duration operator-(SteadyTime a, SteadyTime b) {
    return a.since_start_ - b.since_start_;
  }
  friend constexpr bool operator<(SteadyTime a, SteadyTime b) {
    return a.since_start_ < b.since_start_;
  }
  friend constexpr bool operator>(SteadyTime a, SteadyTime b) { return b < a; }
  friend constexpr bool operator<=(SteadyTime a, SteadyTime b) { return !(b < a); }
  friend constexpr bool operator>=(SteadyTime a, SteadyTime b) { return !(a < b); }
  friend constexpr bool operator==(SteadyTime a, SteadyTime b) {
    return a.since_start_ == b.since_start_;
  }

 private:
  // Since the clock's own beginning.
  constexpr explicit SteadyTime(absl::Duration since_start) : since_start_(since_start) {}

  absl::Duration since_start_;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_THREADS_STEADY_TIME_H_
