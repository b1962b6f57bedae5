#include "brigade/device/device.h"

#include "absl/strings/str_cat.h"

namespace brigade::device {

absl::string_view ToString(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCuda:
      return "cuda";
  }
  return "unknown";
}

std::string Device::ToString() const {
  return absl::StrCat(brigade::device::ToString(kind), ":", ordinal);
}

}  // namespace brigade::device
