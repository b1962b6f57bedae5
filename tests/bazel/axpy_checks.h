#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace brigade::tests {

inline absl::Status CheckSameSize(size_t x, size_t y) {
  if (x == y) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("x has ", x, " elements, y has ", y));
}

}  // namespace brigade::tests
