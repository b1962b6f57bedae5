#ifndef BRIGADE_DEVICE_ALL_ERRORS_H_
#define BRIGADE_DEVICE_ALL_ERRORS_H_

#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace brigade::device {

// The errors among these as one, for an end at which several things may have failed: the code of
// the first, and the messages of all with "; " between them. OK if there is none.
inline absl::Status AllErrors(std::initializer_list<absl::Status> all) {
  absl::Status error;
  for (const absl::Status& each : all) {
    if (each.ok()) continue;
    error = error.ok()
                ? each
                : absl::Status(error.code(), absl::StrCat(error.message(), "; ", each.message()));
  }
  return error;
}

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_ALL_ERRORS_H_
