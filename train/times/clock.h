#ifndef BRIGADE_TRAIN_TIMES_CLOCK_H_
#define BRIGADE_TRAIN_TIMES_CLOCK_H_

#include <chrono>
#include <cstdint>

#include "brigade/device/requirements.h"

namespace brigade::train {

// Of the steady clock, in which the tracer counts as well.
inline int64_t SteadyNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TIMES_CLOCK_H_
