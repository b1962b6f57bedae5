#ifndef BRIGADE_TRAIN_OBSERVERS_STEP_WATCHER_H_
#define BRIGADE_TRAIN_OBSERVERS_STEP_WATCHER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/monitor/monitor.h"
#include "brigade/monitor/record.h"
#include "brigade/train/times/step_times.h"

namespace brigade::train {

// DeepSpeed's parts of a step, in milliseconds, of one rank.
struct StepBreakdown {
  int64_t step = 0;
  // Operations of forward passes, and of backward ones with what they make again.
  double forward = 0;
  double backward_inner = 0;
  // Of collectives what no other work of the rank hid.
  double backward_allreduce = 0;
  // Of the optimizer, likewise.
  double update = 0;

  double backward() const { return backward_inner + backward_allreduce; }
};
StepBreakdown BreakdownOf(const StepTime& time);

// What becomes of the times of steps: values of rank 0's, and a timeline of all ranks that this
// process has.
class StepWatcher {
 public:
  struct Options {
    // Contexts of this process: "rank 0" and so on.
    int ranks = 1;
    int64_t samples_of_step = 0;
    // wall_clock_breakdown: values Train/Samples/elapsed_time_ms_*.
    bool has_values = false;
    // Somebody shows timelines.
    bool has_timelines = false;
    // Gets the parts of each step of rank 0, or null.
    std::function<void(const StepBreakdown&)> on_breakdown = nullptr;
  };

  StepWatcher(monitor::Monitor& monitor, const Options& options)
      : monitor_(monitor), options_(options) {}

  // Recorder::StepSink; `shows`: for a timeline too, unless somebody else brings it. Never waits.
  // Safe from any thread.
  void Watch(absl::string_view context, std::vector<StepTime> steps, bool shows = true);
  // A timeline of one step of all ranks of all processes, by rank. The same.
  void Show(std::vector<StepTime> of_ranks);

 private:
  // Of a step, of ranks that have it.
  using Ranks = std::map<std::string, StepTime>;

  void PublishTimeline(const Ranks& ranks);

  monitor::Monitor& monitor_;
  const Options options_;
  device::Mutex mutex_;
  // By their steps.
  std::map<int64_t, Ranks> steps_ ABSL_GUARDED_BY(mutex_);
  int64_t shown_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_STEP_WATCHER_H_
