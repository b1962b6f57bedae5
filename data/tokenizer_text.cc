#include "brigade/data/tokenizer_text.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "brigade/data/line_reader.h"
#include "brigade/data/source_files.h"
#include "brigade/data/utf8_lines.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"

namespace brigade::data {
namespace {

using Each = absl::FunctionRef<absl::Status(absl::string_view text)>;

// As LineOptions has it.
constexpr int64_t kMostLineBytes = 16 << 20;

absl::Status ForLines(const std::string& path, const LineKeys& keys, BadData& bad, Each each) {
  absl::StatusOr<LineReader> reader = LineReader::Open(path, kMostLineBytes);
  if (!reader.ok()) return bad.File(reader.status());
  Line line;
  while (true) {
    const absl::StatusOr<bool> is_line = reader->Next(line);
    if (!is_line.ok()) return bad.File(is_line.status());
    if (!*is_line) return absl::OkStatus();
    if (!line.is_too_long && absl::StripAsciiWhitespace(line.text).empty()) continue;
    LineSample sample;
    std::optional<LineError> error;
    if (line.is_too_long) {
      error = LineError{absl::StrCat("the line has more than ", kMostLineBytes, " bytes")};
    } else {
      error = ParseLine(line.text, keys, sample);
    }
    if (error.has_value()) {
      BRIGADE_RETURN_IF_ERROR(
          bad.Line(absl::StrCat(Place(path, line.number, error->column), ": ", error->message)));
      continue;
    }
    if (sample.text.has_value()) BRIGADE_RETURN_IF_ERROR(each(*sample.text));
    for (const Turn& turn : sample.turns) BRIGADE_RETURN_IF_ERROR(each(turn.content));
  }
}

}  // namespace

absl::Status ForTexts(const std::string& path, const LineKeys& keys, BadData& bad, Each each) {
  BRIGADE_RETURN_IF_ERROR(CheckKeys(keys));
  BRIGADE_ASSIGN_OR_RETURN(const auto files, SourceFiles(path, "", bad));
  for (const std::string& file : files) {
    if (absl::EndsWith(file, ".jsonl")) {
      BRIGADE_RETURN_IF_ERROR(ForLines(file, keys, bad, each));
      continue;
    }
    absl::StatusOr<std::string> text = device::ReadFile(file);
    if (!text.ok()) {
      BRIGADE_RETURN_IF_ERROR(bad.File(text.status()));
      continue;
    }
    BRIGADE_RETURN_IF_ERROR(LeaveBadLinesOut(file, bad, *text));
    BRIGADE_RETURN_IF_ERROR(each(*text));
  }
  return absl::OkStatus();
}

}  // namespace brigade::data
