#ifndef BRIGADE_TRAIN_TIMES_RECORDER_H_
#define BRIGADE_TRAIN_TIMES_RECORDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/periodic_thread.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/profile/trace_rows.h"
#include "brigade/train/times/chrome_trace.h"
#include "brigade/train/times/pass_times.h"
#include "brigade/train/times/step_times.h"
#include "brigade/train/times/time_split.h"

namespace brigade::train {

// What the streams of a rank did.
struct Recording {
  Seconds time;
  // [stage]: of the model's passes (PassTimes::Stages).
  std::vector<PassSeconds> stages;
};

// Follows what the streams of this process's ranks do: for the report, and into a trace file.
//
// Threads      Begin and End by each rank's thread; a thread of its own empties the tracer.
class Recorder {
 public:
  // Gets the steps of a context soon after they were made; it must not wait.
  using StepSink = std::function<void(absl::string_view context, std::vector<StepTime> steps)>;

  // Both may be null.
  explicit Recorder(ChromeTrace* trace, StepSink step_sink = nullptr);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  device::Tracer& tracer() { return tracer_; }

  // The time of the context of this name counts from here on. Its streams exist and are idle.
  // `steps`: those that were made before.
  void Begin(absl::string_view context, int64_t steps = 0);
  // The time since Begin. The context's streams are idle, and the host has waited for them
  // (docs/device.md, rule 32).
  Recording End(absl::string_view context);

  // From here on the operations of the context of this name are kept, too, with what has not been
  // taken from the tracer yet; they are, until Watched takes them. Names live as long as this
  // object.
  void Watch(absl::string_view context);
  // By stream, in the order in which these were seen; and how many were dropped.
  struct Operations {
    std::vector<profile::StreamOperations> streams;
    int64_t dropped = 0;
  };
  Operations Watched(absl::string_view context);

  // What went wrong with the trace file so far, if anything. Does not wait for the file.
  absl::Status status() const;
  // Ends the trace file; what went wrong with it, if anything.
  absl::Status Finish();

 private:
  struct Rank {
    std::map<std::string, int> streams;
    std::unique_ptr<TimeSplit> split;
    PassTimes passes;
    // Null where nobody wants steps.
    std::unique_ptr<StepTimes> steps;
    int64_t dropped = 0;
    // Null: nobody watches.
    std::unique_ptr<Operations> watched = nullptr;
  };

  void Empty() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(const absl::Status& status);

  const StepSink step_sink_;
  device::Tracer tracer_;
  mutable device::Mutex mutex_;
  ChromeTrace* trace_ ABSL_GUARDED_BY(mutex_);
  mutable device::Mutex status_mutex_;
  absl::Status status_ ABSL_GUARDED_BY(status_mutex_);
  std::map<std::string, Rank> ranks_ ABSL_GUARDED_BY(mutex_);

  // Last: it uses the others.
  device::PeriodicThread thread_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TIMES_RECORDER_H_
