#ifndef BRIGADE_DEVICE_DEVICE_MEMORY_H_
#define BRIGADE_DEVICE_DEVICE_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "brigade/device/device.h"

namespace brigade::device {

// Bytes of a device's memory.
struct DeviceMemory {
  // That nobody has taken, at this moment.
  int64_t free = 0;
  int64_t total = 0;
};

// Of the CPU the machine's memory, of which is free what no process and no cache has. Unavailable,
// with the reason, if the device cannot be used, as of Context::Create.
absl::StatusOr<DeviceMemory> MemoryOf(Device device);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_DEVICE_MEMORY_H_
