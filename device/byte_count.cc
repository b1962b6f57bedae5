#include "brigade/device/byte_count.h"

#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace brigade::device {

std::optional<int64_t> ParseByteCount(absl::string_view text) {
  constexpr std::pair<absl::string_view, int> kUnits[] = {
      {"K", 10}, {"M", 20}, {"G", 30}, {"T", 40}};
  int64_t unit = 1;
  for (const auto& [letter, bits] : kUnits) {
    for (const std::string& suffix : {absl::StrCat(letter, "iB"), std::string(letter)}) {
      // A letter alone is one of either size.
      const bool has = suffix.size() == 1 ? absl::EndsWithIgnoreCase(text, suffix)
                                          : absl::EndsWith(text, suffix);
      if (unit != 1 || !has) continue;
      unit = int64_t{1} << bits;
      text.remove_suffix(suffix.size());
    }
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 ||
      count > std::numeric_limits<int64_t>::max() / unit) {
    return std::nullopt;
  }
  return count * unit;
}

bool AbslParseFlag(absl::string_view text, ByteCount* bytes, std::string* error) {
  const std::optional<int64_t> parsed = ParseByteCount(text);
  if (!parsed.has_value()) {
    *error = "it must be a number of bytes like 65536, 64K, 1M, 1G or 64KiB";
    return false;
  }
  bytes->value = *parsed;
  return true;
}

std::string AbslUnparseFlag(ByteCount bytes) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && bytes.value % 1024 == 0; ++unit) {
    bytes.value /= 1024;
  }
  return absl::StrCat(bytes.value, kUnits[unit]);
}

}  // namespace brigade::device
