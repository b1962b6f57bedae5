#include "brigade/train/watch.h"

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/counted.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/monitor/monitor.h"
#include "brigade/train/observers/console.h"
#include "brigade/train/observers/metric_records.h"
#include "brigade/train/observers/monitors.h"
#include "brigade/train/observers/observers.h"
#include "brigade/train/observers/queued_observer.h"
#include "brigade/train/observers/step_watcher.h"
#include "brigade/train/times/chrome_trace.h"

namespace brigade::train {
namespace {

// Tells of trouble, which ends no training.
class TroubleTeller final : public Observer {
 public:
  explicit TroubleTeller(std::string program) : program_(std::move(program)) {}
  absl::Status OnStep(const StepMetrics&) override { return absl::OkStatus(); }
  absl::Status OnEvaluation(const Evaluation&) override { return absl::OkStatus(); }
  absl::Status OnTrouble(const absl::Status& trouble) override {
    absl::FPrintF(stderr, "%s: %s; the training goes on\n", program_, trouble.message());
    return absl::OkStatus();
  }

 private:
  const std::string program_;
};

// Hands on, once, that the trace cannot be written; from any thread.
class TraceObserver final : public Observer {
 public:
  // Both must outlive it.
  TraceObserver(const Recorder& recorder, Observer& teller)
      : recorder_(recorder), teller_(teller) {}
  absl::Status OnStep(const StepMetrics&) override { return Look(); }
  absl::Status OnEvaluation(const Evaluation&) override { return Look(); }

 private:
  absl::Status Look() {
    const absl::Status status = recorder_.status();
    if (status.ok() || has_told_.exchange(true)) return absl::OkStatus();
    return teller_.OnTrouble(status);
  }

  const Recorder& recorder_;
  Observer& teller_;
  std::atomic<bool> has_told_ = false;
};

std::string TracePath(const std::string& path, int rank) {
  if (rank == 0) return path;
  const size_t dot = path.rfind('.');
  const size_t at =
      dot == std::string::npos || path.find('/', dot) != std::string::npos ? path.size() : dot;
  return absl::StrCat(path.substr(0, at), ".rank", rank, path.substr(at));
}

}  // namespace

struct Watch::Parts {
  // Rank 0's lines of progress and monitors begin; so do the values that are made of the times of
  // its steps.
  Parts(const Job& job, const WatchOptions& options, Monitors monitors,
        std::unique_ptr<ChromeTrace> trace_file)
      : program(options.program),
        url(std::move(monitors.url)),
        monitor(std::move(monitors.back_ends),
                {.on_trouble =
                     [name = options.program](const std::string& text) {
                       absl::FPrintF(stderr, "%s: %s\n", name, text);
                     }}),
        monitor_observer(monitor, job.config.batch.train_batch_size),
        trace(std::move(trace_file)) {
    observers.Add(monitor_observer);
    const bool speaks = options.rank == 0;
    if (speaks && options.progress != nullptr) {
      console = std::make_shared<Console>(options.progress, options.columns, job.steps,
                                          options.units_of_step, job.config.steps_per_print,
                                          options.unit, options.loss);
      observers.Add(queued_console.emplace(console));
    }
    const bool has_breakdown = speaks && job.config.monitor.wall_clock_breakdown;
    const bool has_timelines = !url.empty();
    step_watcher.emplace(
        monitor,
        StepWatcher::Options{.ranks = options.threads == 0 ? 1 : options.threads,
                             .samples_of_step = job.config.batch.train_batch_size,
                             .has_values = has_breakdown,
                             .has_timelines = has_timelines,
                             .on_breakdown = [this, has_breakdown](const StepBreakdown& breakdown) {
                               if (!has_breakdown || console == nullptr) return;
                               queued_console->Post(
                                   [to = console, breakdown] { to->OnBreakdown(breakdown); });
                             }});
    // What each of the processes does goes to rank 0.
    if (options.threads == 0 && options.dashboard_port.has_value()) {
      lanes.emplace(
          [this](std::vector<StepTime> of_ranks) { step_watcher->Show(std::move(of_ranks)); });
    }
    Recorder::StepSink step_sink = options.on_steps;
    if (has_breakdown || has_timelines || lanes.has_value()) {
      step_sink = [this, speaks, also = options.on_steps](absl::string_view context,
                                                          std::vector<StepTime> steps) {
        if (also != nullptr) also(context, steps);
        const bool goes_elsewhere = lanes.has_value() && lanes->active();
        if (goes_elsewhere) lanes->Keep(steps);
        if (speaks) step_watcher->Watch(context, std::move(steps), !goes_elsewhere);
      };
    }
    recorder.emplace(trace.get(), std::move(step_sink));
    observers.Add(teller);
    // Also without a trace: ranks that are not 0 have no other observer.
    observers.Add(trace_observer.emplace(*recorder, teller));
  }

  const std::string program;
  const std::string url;
  Observers observers;
  monitor::Monitor monitor;
  MonitorObserver monitor_observer;
  // mpirun gives its processes terminals, wherever what they write goes; writing to one may wait
  // for ever.
  std::shared_ptr<Console> console;
  std::optional<QueuedObserver> queued_console;
  // Nor may an error output hold up a step.
  QueuedObserver teller{std::make_shared<TroubleTeller>(program)};
  std::optional<StepWatcher> step_watcher;
  std::optional<RankLanes> lanes;
  std::unique_ptr<ChromeTrace> trace;
  // Its thread uses what is above.
  std::optional<Recorder> recorder;
  std::optional<TraceObserver> trace_observer;

  device::Mutex mutex;
  bool is_closed ABSL_GUARDED_BY(mutex) = false;
};

absl::StatusOr<std::unique_ptr<Watch>> Watch::Create(const Job& job, const WatchOptions& options) {
  std::unique_ptr<ChromeTrace> trace;
  if (!options.trace.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(trace, ChromeTrace::Create(TracePath(options.trace, options.rank),
                                                        !job.checkpoints.resume.empty()));
  }
  Monitors monitors;
  if (options.rank == 0) {
    BRIGADE_ASSIGN_OR_RETURN(monitors, CreateMonitors({.metrics = options.metrics,
                                                       .config = job.config.monitor,
                                                       .dashboard_port = options.dashboard_port,
                                                       .title = options.title,
                                                       .steps = job.steps,
                                                       .unit = options.unit,
                                                       .loss = options.loss}));
    // Whether it can be written, before the step that is profiled.
    if (const std::string& profile = job.config.profiler.output_file; !profile.empty()) {
      BRIGADE_RETURN_IF_ERROR(device::FileReplacement::Begin(profile).status());
    }
    std::FILE* const to = options.progress != nullptr ? options.progress : stderr;
    for (const std::string& key : job.config.without_effect) {
      absl::FPrintF(to, "Without effect: %s\n", key);
    }
    std::fflush(to);
  }
  return std::unique_ptr<Watch>(
      new Watch(std::make_unique<Parts>(job, options, std::move(monitors), std::move(trace))));
}

std::unique_ptr<Watch> Watch::Silent() {
  return std::unique_ptr<Watch>(
      new Watch(std::make_unique<Parts>(Job(), WatchOptions(), Monitors(), nullptr)));
}

Watch::Watch(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Watch::~Watch() { Close(kPatience); }

Observer& Watch::observer() { return parts_->observers; }
Observer& Watch::trace_observer() { return *parts_->trace_observer; }
Recorder& Watch::recorder() { return *parts_->recorder; }
RankLanes* Watch::lanes() { return parts_->lanes.has_value() ? &*parts_->lanes : nullptr; }
const std::string& Watch::url() const { return parts_->url; }

void Watch::Close(absl::Duration patience) {
  device::MutexLock lock(parts_->mutex);
  if (std::exchange(parts_->is_closed, true)) return;
  if (parts_->queued_console.has_value()) {
    QueuedObserver& console = *parts_->queued_console;
    console.Post([to = parts_->console] { to->OnEnd(); });
    console.Drain(patience);
    if (console.dropped() > 0) {
      absl::FPrintF(stderr, "%s: %s of progress not printed: nobody took them in time\n",
                    parts_->program, device::Counted(console.dropped(), "line"));
    }
  }
  parts_->teller.Drain(patience);
  for (const monitor::BackEndReport& of : parts_->monitor.Close(patience)) {
    const std::string trouble = of.Trouble();
    if (!trouble.empty()) absl::FPrintF(stderr, "%s: %s\n", parts_->program, trouble);
  }
}

}  // namespace brigade::train
