#ifndef BRIGADE_DEVICE_THREADS_DEADLINE_H_
#define BRIGADE_DEVICE_THREADS_DEADLINE_H_

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace brigade::device {

// When `timeout` will have passed, on the steady clock, which nobody sets. At most in a year: the
// clock cannot say "never".
inline std::chrono::steady_clock::time_point DeadlineAfter(absl::Duration timeout) {
  return std::chrono::steady_clock::now() +
         absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365)));
}

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_THREADS_DEADLINE_H_
