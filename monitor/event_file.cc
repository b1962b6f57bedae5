#include "brigade/monitor/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/monitor/event_record.h"
#include "brigade/monitor/monitor.h"

namespace brigade::monitor {
namespace {

constexpr absl::string_view kPrefix = "events.out.tfevents.";
// Of names whose order is that of their numbers: seconds have ten digits until the year 2286.
constexpr int64_t kMostSeconds = 9999999999;
constexpr int kMostTries = 100;

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name;
  for (char& c : host) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return host;
}

// The seconds of the last event file there, or 0.
int64_t LastSeconds(const std::string& folder) {
  int64_t last = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!absl::StartsWith(name, kPrefix)) continue;
    const absl::string_view rest = absl::string_view(name).substr(kPrefix.size());
    int64_t seconds = 0;
    if (absl::SimpleAtoi(rest.substr(0, rest.find('.')), &seconds) && seconds < kMostSeconds) {
      last = std::max(last, seconds);
    }
  }
  return last;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& folder) {
  BRIGADE_RETURN_IF_ERROR(device::MakeFolder(folder));
  const std::string host = HostName();
  absl::StatusOr<device::AppendFile> file = absl::UnknownError("");
  // Of several trainings that start in one second each gets its own.
  for (int i = 0; i < kMostTries; ++i) {
    const int64_t seconds = std::max(static_cast<int64_t>(WallSeconds()), LastSeconds(folder) + 1);
    file = device::AppendFile::Create(
        absl::StrCat(folder, "/", kPrefix, absl::Dec(seconds, absl::kZeroPad10), ".", host));
    if (!absl::IsAlreadyExists(file.status())) break;
  }
  BRIGADE_RETURN_IF_ERROR(file.status());
  return std::unique_ptr<EventFile>(new EventFile(folder, *std::move(file)));
}

std::string EventFile::name() const {
  return absl::StrCat("TensorBoard's events in ", device::Printable(folder_, 400));
}

absl::Status EventFile::Start(const Position& from) {
  const double now = WallSeconds();
  const std::string version = file_.size() == 0 ? Framed(VersionEvent(now)) : "";
  begin_ = version + Framed(StartEvent(now, from.step == 0 ? 0 : from.samples + 1));
  // Of a back end that cannot start nothing more is written. What does not fit now is tried, and
  // told, with the first record.
  Write({}).IgnoreError();
  return absl::OkStatus();
}

absl::Status EventFile::Write(const Record& record) {
  const std::string event = ScalarsEvent(record.wall_time, record.at.samples, record.values);
  const std::string bytes = event.empty() ? begin_ : begin_ + Framed(event);
  if (bytes.empty()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(file_.Append(bytes));
  begin_.clear();
  return absl::OkStatus();
}

absl::Status EventFile::Finish() { return file_.Close(); }

}  // namespace brigade::monitor
