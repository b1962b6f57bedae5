#include "brigade/device/byte_count.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace brigade::device {

std::optional<int64_t> ParseByteCount(absl::string_view text) {
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&text, "KiB")) {
    unit = int64_t{1} << 10;
  } else if (absl::ConsumeSuffix(&text, "MiB")) {
    unit = int64_t{1} << 20;
  } else if (absl::ConsumeSuffix(&text, "GiB")) {
    unit = int64_t{1} << 30;
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 ||
      count > std::numeric_limits<int64_t>::max() / unit) {
    return std::nullopt;
  }
  return count * unit;
}

}  // namespace brigade::device
