#include "brigade/monitor/csv_files.h"

#include <charconv>
#include <cstdint>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::monitor {
namespace {

constexpr absl::string_view kEnd = "\r\n";
// Of the first line.
constexpr absl::string_view kFirstField = "step,";

// The fewest digits that are read back as the same number.
std::string TextOf(double value) {
  char text[40];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return error == std::errc() ? std::string(text, end) : "nan";
}

// In quotation marks where it would not be one field.
std::string Field(absl::string_view text) {
  if (text.find_first_of(",\"\r\n") == absl::string_view::npos) return std::string(text);
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}, {"\r", " "}, {"\n", " "}}),
                      "\"");
}

std::string HeaderOf(absl::string_view tag) {
  const size_t slash = tag.rfind('/');
  return absl::StrCat(kFirstField,
                      Field(slash == absl::string_view::npos ? tag : tag.substr(slash + 1)), kEnd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CsvFiles>> CsvFiles::Create(const std::string& folder) {
  BRIGADE_RETURN_IF_ERROR(device::MakeFolder(folder));
  return std::unique_ptr<CsvFiles>(new CsvFiles(folder));
}

std::string CsvFiles::FileOf(absl::string_view tag) {
  return absl::StrCat(absl::StrReplaceAll(tag, {{"/", "_"}, {" ", "_"}}), ".csv");
}

std::string CsvFiles::name() const {
  return absl::StrCat("CSV files in ", device::Printable(folder_, 400));
}

absl::Status CsvFiles::Start(const Position& from) {
  from_ = from;
  for (auto& [name, entry] : files_) entry.is_cut = false;
  return absl::OkStatus();
}

absl::Status CsvFiles::WriteValue(const Value& value, const Record& record) {
  const std::string file = FileOf(value.tag);
  auto entry = files_.find(file);
  const std::string header = HeaderOf(value.tag);
  if (entry == files_.end()) {
    BRIGADE_ASSIGN_OR_RETURN(device::AppendFile opened,
                             device::AppendFile::Open(absl::StrCat(folder_, "/", file)));
    entry = files_.emplace(file, File{std::move(opened)}).first;
  }
  device::AppendFile& to = entry->second.file;
  if (!entry->second.is_cut) {
    // An evaluation at the very step comes again.
    const int64_t last = from_.samples - (record.is_made_again ? 1 : 0);
    BRIGADE_RETURN_IF_ERROR(to.KeepLines([&](absl::string_view line) {
      using Fate = device::AppendFile::Fate;
      if (from_.step == 0) return Fate::kCutOff;
      // Whatever has become of the line's end.
      if (absl::StartsWith(line, kFirstField)) return Fate::kKept;
      int64_t samples = 0;
      if (!absl::SimpleAtoi(line.substr(0, line.find(',')), &samples)) return Fate::kDamaged;
      return samples <= last ? Fate::kKept : Fate::kCutOff;
    }));
    entry->second.is_cut = true;
  }
  return to.Append(absl::StrCat(to.size() == 0 ? header : "", record.at.samples, ",",
                                TextOf(value.value), kEnd));
}

absl::Status CsvFiles::Write(const Record& record) {
  absl::Status status;
  for (const Value& value : record.values) {
    if (!value.tag.empty()) status.Update(WriteValue(value, record));
  }
  return status;
}

absl::Status CsvFiles::Finish() {
  absl::Status status;
  for (auto& [name, entry] : files_) status.Update(entry.file.Close());
  return status;
}

}  // namespace brigade::monitor
