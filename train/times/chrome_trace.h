#ifndef BRIGADE_TRAIN_TIMES_CHROME_TRACE_H_
#define BRIGADE_TRAIN_TIMES_CHROME_TRACE_H_

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/requirements.h"
#include "brigade/device/tracing/tracer.h"

namespace brigade::train {

// Writes traced operations into a file of Chrome's trace format, which Perfetto (ui.perfetto.dev)
// opens: one process for each context, "rank 0", and in it one track for each stream. A context's
// process has the number that its name ends in, so that the files of several ranks fit together;
// without one it has a number from a million on. Waits are named "wait for <event>", of category
// "wait"; a track that lost operations says how many, at the place. Where a stream has marks of a
// pipeline's passes (MarkPass) these are in a track beside it, "compute passes", each from its mark
// to the end of its last operation: "F5'", of category "pass". Gaps between them are the bubble.
//
// Memory       None that grows with the file. One that was not finished opens as well: the format
//              allows it to break off.
// Times        Those of the steady clock, so that the files of several processes of one machine fit
//              each other.
// Errors       What the system says, naming the file. The first one is final: later calls return it
//              and write nothing.
// Threads      One at a time.
class ChromeTrace {
 public:
  // Replaces the file, or goes on behind its last whole event, also where it breaks off; on a clock
  // that is behind by then, as after a restart of the machine, what comes follows at once.
  static absl::StatusOr<std::unique_ptr<ChromeTrace>> Create(const std::string& path,
                                                             bool goes_on = false);

  ~ChromeTrace();
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  // What Tracer::Take gave. Streams of the same two names share a track.
  absl::Status Append(absl::Span<const device::TracedStream> streams);

  // The end of the file, on the disk as far as the system tells; no Append after it.
  absl::Status Finish();

 private:
  struct Track {
    int process = 0;
    int thread = 0;
    // The end of the last operation.
    int64_t end_ns = 0;
    // The pass that has begun; empty: none has.
    std::string pass = {};
    int64_t pass_begin_ns = 0;
    // The end of the last operation of it that was no wait: the next pass's wait comes before its
    // mark.
    int64_t pass_end_ns = 0;
  };

  ChromeTrace(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  absl::Status GoOn();
  Track& TrackOf(absl::string_view context, absl::string_view stream);
  // Ends the stream's pass, if it is in one, and begins the next, if it has a name.
  void ChangePass(const device::TracedStream& stream, Track& track, absl::string_view next,
                  int64_t begin_ns);
  void WriteSpan(const Track& track, absl::string_view name, const char* category, int64_t begin_ns,
                 int64_t end_ns);
  void WriteMetadata(const Track& track, const char* what, const std::string& argument);
  void WriteEvent(const std::string& json);
  // If not written, keeps the error of errno.
  absl::Status Note(bool written);

  const std::string path_;
  // Null once finished.
  std::FILE* file_;
  absl::Status status_;
  bool empty_ = true;
  // The end of what was there, and what is added to the clock so that it stays behind; -1: nothing
  // has come yet.
  int64_t before_ns_ = 0;
  int64_t shift_ns_ = -1;
  // The number of each context's process.
  std::map<std::string, int> processes_;
  // How many tracks each has.
  std::map<std::string, int> tracks_of_;
  std::map<std::pair<std::string, std::string>, Track> tracks_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TIMES_CHROME_TRACE_H_
