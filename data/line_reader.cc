#include "brigade/data/line_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/strip.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {

absl::StatusOr<LineReader> LineReader::Open(const std::string& path, int64_t most_line_bytes) {
  BRIGADE_ASSIGN_OR_RETURN(device::InputFile file, device::InputFile::Open(path));
  return LineReader(std::move(file), most_line_bytes);
}

absl::Status LineReader::ReadBlock() {
  const int64_t bytes = std::min(left_, kBlockBytes);
  block_.resize(static_cast<size_t>(bytes));
  BRIGADE_RETURN_IF_ERROR(file_.Read(block_.data(), bytes));
  left_ -= bytes;
  at_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> LineReader::Next(Line& line) {
  begun_.clear();
  bool is_too_long = false, is_begun = false;
  while (true) {
    if (at_ == block_.size()) {
      if (left_ == 0 && !is_begun) return false;
      if (left_ > 0) BRIGADE_RETURN_IF_ERROR(ReadBlock());
    }
    const absl::string_view rest = absl::string_view(block_).substr(at_);
    const size_t newline = rest.find('\n');
    const absl::string_view part = rest.substr(0, newline);
    at_ += part.size() + (newline == absl::string_view::npos ? 0 : 1);
    const bool is_whole = newline != absl::string_view::npos || left_ == 0;
    is_too_long = is_too_long || begun_.size() + part.size() > most_;
    line = {part, 0, is_too_long};
    if (!is_whole || is_begun) {
      if (is_too_long) {
        begun_.clear();
      } else {
        begun_.append(part.data(), part.size());
      }
      line.text = begun_;
    }
    is_begun = true;
    if (!is_whole) continue;
    line.number = ++number_;
    line.text = is_too_long ? absl::string_view() : absl::StripSuffix(line.text, "\r");
    return true;
  }
}

}  // namespace brigade::data
