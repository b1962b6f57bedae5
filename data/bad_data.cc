#include "brigade/data/bad_data.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"

namespace brigade::data {
namespace {

std::string Counted(int64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

absl::StatusOr<OnError> ParseOnError(absl::string_view text) {
  if (text == "refuse") return OnError::kRefuse;
  if (text == "skip") return OnError::kSkip;
  return absl::InvalidArgumentError(
      absl::StrCat(device::Quoted(text), " is neither refuse nor skip"));
}

std::string Skipped::Text() const {
  if (lines == 0 && files == 0) return "";
  std::string text = lines == 0 ? "" : Counted(lines, "line");
  if (files > 0) absl::StrAppend(&text, lines == 0 ? "" : " and ", Counted(files, "file"));
  absl::StrAppend(&text, lines + files == 1 ? " was" : " were", " left out");
  for (const std::string& message : messages) absl::StrAppend(&text, "\n  ", message);
  const int64_t others = lines + files - std::ssize(messages);
  if (others > 0) absl::StrAppend(&text, "\n  and ", others, " more");
  return text;
}

void BadData::Keep(std::string message) {
  if (skipped_.messages.size() < Skipped::kMostMessages) {
    skipped_.messages.push_back(std::move(message));
  }
}

absl::Status BadData::Line(std::string message) {
  if (on_error_ == OnError::kRefuse) return absl::InvalidArgumentError(message);
  ++skipped_.lines;
  Keep(std::move(message));
  return absl::OkStatus();
}

absl::Status BadData::File(const absl::Status& error) {
  if (on_error_ == OnError::kRefuse) return error;
  ++skipped_.files;
  Keep(std::string(error.message()));
  return absl::OkStatus();
}

std::string ShownPath(absl::string_view path) {
  constexpr size_t kMost = 800;
  return device::Printable(path, kMost);
}

std::string Place(absl::string_view path, int64_t line, int64_t column) {
  return absl::StrCat(ShownPath(path), ":", line, column == 0 ? "" : absl::StrCat(":", column));
}

}  // namespace brigade::data
