#ifndef BRIGADE_DEVICE_INTERNAL_MESSAGES_H_
#define BRIGADE_DEVICE_INTERNAL_MESSAGES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace brigade::device::internal {

// The words of docs/device.md, rules 8 and 10, said once for all devices.

inline std::string StreamLabel(absl::string_view stream, absl::string_view context) {
  return absl::StrCat("stream \"", stream, "\" of \"", context, "\"");
}

inline absl::Status FailedOperation(absl::string_view operation, absl::string_view stream_label,
                                    const absl::Status& error) {
  return absl::Status(error.code(),
                      absl::StrCat("\"", operation, "\" on ", stream_label, ": ", error.message()));
}

// `who` is a stream's label or "the host".
inline absl::Status ArrivedThrough(absl::string_view event, absl::string_view who,
                                   const absl::Status& error) {
  return absl::Status(error.code(), absl::StrCat(error.message(), "; reached ", who,
                                                 " through event \"", event, "\""));
}

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_INTERNAL_MESSAGES_H_
