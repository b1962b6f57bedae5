#include "brigade/data/utf8_lines.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/data/tokenizers/utf8.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {

absl::Status LeaveBadLinesOut(const std::string& path, BadData& bad, std::string& text) {
  size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  // What stays, and the number of the line where the rest begins.
  std::string good;
  absl::string_view rest = text;
  int64_t line = 1;
  while (valid < rest.size()) {
    const size_t newline = rest.rfind('\n', valid);
    const size_t begin = newline == absl::string_view::npos ? 0 : newline + 1;
    const size_t end = std::min(rest.find('\n', valid), rest.size() - 1) + 1;
    line += std::count(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(begin), '\n');
    BRIGADE_RETURN_IF_ERROR(
        bad.Line(absl::StrCat(Place(path, line, static_cast<int64_t>(valid - begin) + 1), ": byte ",
                              static_cast<uint8_t>(rest[valid]), " is not valid UTF-8 there")));
    good.append(rest.data(), begin);
    rest.remove_prefix(end);
    ++line;
    valid = ValidUtf8Prefix(rest);
  }
  good.append(rest.data(), rest.size());
  text = std::move(good);
  return absl::OkStatus();
}

}  // namespace brigade::data
