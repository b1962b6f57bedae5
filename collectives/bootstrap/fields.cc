#include "brigade/collectives/bootstrap/fields.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"

namespace brigade::collectives {

std::string PackFields(const std::vector<std::string>& fields) {
  std::string packed;
  for (const std::string& field : fields) absl::StrAppend(&packed, field.size(), ":", field);
  return packed;
}

absl::StatusOr<std::vector<std::string>> UnpackFields(absl::string_view packed) {
  std::vector<std::string> fields;
  while (!packed.empty()) {
    const size_t colon = packed.find(':');
    uint64_t size = 0;
    // As PackFields writes it: SimpleAtoi takes "+1", " 1" and "01" as well.
    if (colon == absl::string_view::npos || !absl::SimpleAtoi(packed.substr(0, colon), &size) ||
        packed.substr(0, colon) != absl::StrCat(size) || size > packed.size() - colon - 1) {
      return absl::InvalidArgumentError("not a message of this protocol");
    }
    fields.emplace_back(packed.substr(colon + 1, size));
    packed.remove_prefix(colon + 1 + size);
  }
  if (fields.empty()) return absl::InvalidArgumentError("an empty message");
  return fields;
}

absl::Status ErrorOfCode(int code, absl::string_view message) {
  const bool is_error = code >= static_cast<int>(absl::StatusCode::kCancelled) &&
                        code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(is_error ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      device::Printable(message));
}

}  // namespace brigade::collectives
