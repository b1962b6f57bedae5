#include "brigade/collectives/bootstrap/fields.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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

std::string Printable(absl::string_view text) {
  constexpr size_t kMost = 2000;
  std::string printable;
  for (size_t i = 0; i < text.size(); ++i) {
    if (printable.size() > kMost - 8) return printable + "...";
    const char c = text[i];
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      printable += c;
    } else {
      absl::StrAppendFormat(&printable, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return printable;
}

absl::Status ErrorOfCode(int code, absl::string_view message) {
  const bool is_error = code >= static_cast<int>(absl::StatusCode::kCancelled) &&
                        code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(is_error ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      Printable(message));
}

}  // namespace brigade::collectives
