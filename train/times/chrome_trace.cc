#include "brigade/train/times/chrome_trace.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/train/times/pass_times.h"

namespace brigade::train {
namespace {

using device::TracedOperation;

// With quotes. What is no UTF-8 becomes a question mark, for JSON knows nothing else.
std::string Quoted(absl::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The format counts in microseconds.
std::string Microseconds(int64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

int ProcessOf(absl::string_view context, size_t contexts_before) {
  size_t digits = 0;
  while (digits < context.size() && absl::ascii_isdigit(context[context.size() - 1 - digits])) {
    ++digits;
  }
  int number = 0;
  const bool has_number = absl::SimpleAtoi(context.substr(context.size() - digits), &number);
  return has_number ? number : 1'000'000 + static_cast<int>(contexts_before);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChromeTrace>> ChromeTrace::Create(const std::string& path,
                                                                 bool goes_on) {
  BRIGADE_ASSIGN_OR_RETURN(std::FILE* const file,
                           goes_on ? device::OpenForUpdate(path) : device::OpenForWriting(path));
  std::unique_ptr<ChromeTrace> trace(new ChromeTrace(path, file));
  if (goes_on) BRIGADE_RETURN_IF_ERROR(trace->GoOn());
  return trace;
}

// Events are lines of their own, with "[" or "," at the end of the line before; the end of the last
// ones is that of all, as far as it matters.
absl::Status ChromeTrace::GoOn() {
  constexpr int64_t kTail = 1 << 16;
  std::string tail(kTail, '\0');
  const bool at_end = fseeko(file_, 0, SEEK_END) == 0;
  const int64_t size = ftello(file_);
  const int64_t begin = std::max<int64_t>(size - kTail, 0);
  if (!at_end || size < 0 || fseeko(file_, begin, SEEK_SET) != 0) return Note(false);
  tail.resize(std::fread(tail.data(), 1, tail.size(), file_));
  int64_t kept = 0;
  for (size_t at = tail.find('\n'); at != std::string::npos;) {
    const size_t next = tail.find('\n', at + 1);
    std::string line = tail.substr(at + 1, next == std::string::npos ? next : next - at - 1);
    if (!line.empty() && line.back() == ',') line.pop_back();
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto is_number = [&](const char* key) {
      return !event.contains(key) || event[key].is_number();
    };
    if (!event.is_object() || !is_number("ts") || !is_number("dur")) break;
    kept = begin + static_cast<int64_t>(at + 1 + line.size());
    const double end = event.value("ts", 0.0) + event.value("dur", 0.0);
    before_ns_ = std::max(before_ns_, static_cast<int64_t>(1000 * end));
    at = next;
  }
  empty_ = kept == 0;
  return Note(std::ferror(file_) == 0 && ftruncate(fileno(file_), kept) == 0 &&
              fseeko(file_, kept, SEEK_SET) == 0);
}

ChromeTrace::~ChromeTrace() {
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status ChromeTrace::Note(bool written) {
  if (!written && status_.ok()) {
    status_ = absl::ErrnoToStatus(errno, absl::StrCat("cannot write trace ", path_));
  }
  return status_;
}

void ChromeTrace::WriteEvent(const std::string& json) {
  if (!status_.ok()) return;
  Note(std::fprintf(file_, "%s\n%s", empty_ ? "[" : ",", json.c_str()) >= 0).IgnoreError();
  empty_ = false;
}

void ChromeTrace::WriteMetadata(const Track& track, const char* what, const std::string& argument) {
  WriteEvent(absl::StrCat("{\"name\":\"", what, "\",\"ph\":\"M\",\"pid\":", track.process,
                          ",\"tid\":", track.thread, ",\"args\":{", argument, "}}"));
}

ChromeTrace::Track& ChromeTrace::TrackOf(absl::string_view context_name, absl::string_view stream) {
  const std::string context(context_name);
  const auto [place, is_new] = tracks_.try_emplace({context, std::string(stream)});
  Track& track = place->second;
  if (!is_new) return track;
  const auto [process, is_first] =
      processes_.try_emplace(context, ProcessOf(context, processes_.size()));
  track.process = process->second;
  // The same in a training that goes on with the file.
  track.thread = ++tracks_of_[context];
  const auto name = [](absl::string_view of) { return absl::StrCat("\"name\":", Quoted(of)); };
  if (is_first) {
    WriteMetadata(track, "process_name", name(context));
    WriteMetadata(track, "process_sort_index", absl::StrCat("\"sort_index\":", track.process));
  }
  WriteMetadata(track, "thread_name", name(stream));
  return track;
}

void ChromeTrace::WriteSpan(const Track& track, absl::string_view name, const char* category,
                            int64_t begin_ns, int64_t end_ns) {
  WriteEvent(absl::StrCat("{\"name\":", Quoted(name), ",\"cat\":\"", category,
                          "\",\"ph\":\"X\",\"ts\":", Microseconds(begin_ns),
                          ",\"dur\":", Microseconds(end_ns - begin_ns), ",\"pid\":", track.process,
                          ",\"tid\":", track.thread, "}"));
}

void ChromeTrace::ChangePass(const device::TracedStream& stream, Track& track,
                             absl::string_view next, int64_t begin_ns) {
  if (!track.pass.empty()) {
    WriteSpan(TrackOf(stream.context, absl::StrCat(stream.stream, " passes")), track.pass, "pass",
              track.pass_begin_ns, track.pass_end_ns);
  }
  track.pass = std::string(next);
  track.pass_begin_ns = track.pass_end_ns = begin_ns;
}

absl::Status ChromeTrace::Append(absl::Span<const device::TracedStream> streams) {
  for (const device::TracedStream& stream : streams) {
    if (shift_ns_ < 0 && !stream.operations.empty()) {
      shift_ns_ = std::max<int64_t>(before_ns_ - stream.operations.front().begin_ns, 0);
    }
    Track& track = TrackOf(stream.context, stream.stream);
    for (const TracedOperation& operation : stream.operations) {
      const int64_t begin_ns = operation.begin_ns + shift_ns_;
      track.end_ns = operation.end_ns + shift_ns_;
      if (const auto pass = PassOfMark(operation.name); pass.has_value()) {
        ChangePass(stream, track, *pass, begin_ns);
        continue;
      }
      const bool waits = operation.kind == TracedOperation::Kind::kWait;
      if (!waits) track.pass_end_ns = track.end_ns;
      WriteSpan(track, absl::StrCat(waits ? "wait for " : "", operation.name),
                waits ? "wait" : "work", begin_ns, track.end_ns);
    }
    if (stream.dropped > 0) {
      WriteEvent(absl::StrCat("{\"name\":\"", stream.dropped,
                              " operations dropped\",\"cat\":\"dropped\",\"ph\":\"i\",\"s\":\"t\"",
                              ",\"ts\":", Microseconds(track.end_ns), ",\"pid\":", track.process,
                              ",\"tid\":", track.thread, "}"));
    }
  }
  return status_;
}

absl::Status ChromeTrace::Finish() {
  if (status_.ok()) Note(std::fputs(empty_ ? "[]\n" : "\n]\n", file_) >= 0).IgnoreError();
  // Closing writes what is left, and may fail for it.
  return Note(std::fclose(std::exchange(file_, nullptr)) == 0);
}

}  // namespace brigade::train
