#ifndef BRIGADE_DEVICE_DEVICE_H_
#define BRIGADE_DEVICE_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::device {

enum class DeviceKind : uint8_t { kCpu, kCuda };

// A device of this machine, by kind and number: "cpu:0", "cuda:3".
//
// All CPU ordinals name the same cores and memory; several let ranks of one process stand for
// several devices.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;

  std::string ToString() const;

  friend bool operator==(const Device&, const Device&) = default;
};

inline Device Cpu(int ordinal = 0) { return {DeviceKind::kCpu, ordinal}; }
inline Device Cuda(int ordinal = 0) { return {DeviceKind::kCuda, ordinal}; }

// "cpu" or "cuda".
absl::string_view ToString(DeviceKind kind);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_DEVICE_H_
