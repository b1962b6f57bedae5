#ifndef BRIGADE_DEVICE_ROUND_UP_H_
#define BRIGADE_DEVICE_ROUND_UP_H_

#include <cstdint>

#include "brigade/device/requirements.h"

namespace brigade::device {

// The least multiple of `unit`, which is above 0, that is at least `value`, which is not below 0.
constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_ROUND_UP_H_
