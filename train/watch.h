#ifndef BRIGADE_TRAIN_WATCH_H_
#define BRIGADE_TRAIN_WATCH_H_

#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/train/job.h"
#include "brigade/train/observers/observer.h"
#include "brigade/train/observers/rank_lanes.h"
#include "brigade/train/times/recorder.h"

namespace brigade::train {

// What a process shows of its training, beside what the job's config says of monitors.
struct WatchOptions {
  // Of this process: rank 0 tells of all, others leave at most a trace.
  int rank = 0;
  // Ranks that are threads of this process; 0: it is one rank, of those that a launcher started.
  int threads = 0;
  // Lines of progress, or null; `columns` of a terminal, 0 where there is none.
  std::FILE* progress = nullptr;
  size_t columns = 0;
  // What a step has, in units of what its losses are of.
  double units_of_step = 0;
  std::string unit = "sample";
  // In what losses count: "nats" of cross entropies, else perhaps "loss".
  std::string loss = "nats";
  // JSON lines; empty: none.
  std::string metrics = {};
  // A Chrome trace; ranks that are processes, but 0, write FILE.rank1.json and so on. Empty: none.
  std::string trace = {};
  // A page for browsers of this machine, and its title; 0: any port that is free. All processes of
  // a training are asked for it alike.
  std::optional<int> dashboard_port = std::nullopt;
  std::string title = {};
  // Gets the times of steps of this process's ranks, or null; it must not wait.
  Recorder::StepSink on_steps = nullptr;
  // Stands in front of what is told on stderr.
  std::string program = "train";
};

// All that watches a training in one process: lines of progress, the monitors of the config
// (tensorboard, csv_monitor, wall_clock_breakdown), a page, a trace, and the recorder that these
// and the report have their times from.
//
// Host waits   No step waits for a terminal, a disk or a browser: each has a thread and a bounded
//              queue, and what does not fit is dropped and counted.
// Trouble      No step fails for it. That of monitors, of the trace, and what Observer::OnTrouble
//              tells, is told on stderr while the training goes on, once each. At the end Close
//              tells that of monitors, and Recorder::Finish gives that of the trace.
// Threads      As Observer and Recorder say; Close from any, one at a time.
class Watch {
 public:
  // What a monitor or a terminal gets, at the end, for what it has not taken yet.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // Errors of files and ports, before anything is trained. Rank 0 tells which keys of the config
  // are without effect, a line each where lines of progress go, or on stderr where they go nowhere.
  static absl::StatusOr<std::unique_ptr<Watch>> Create(const Job& job, const WatchOptions& options);
  // Shows nothing, and has a recorder.
  static std::unique_ptr<Watch> Silent();
  // Closes with kPatience.
  ~Watch();

  // Of rank 0.
  Observer& observer();
  // Of the others, from any thread: tells once if this process's trace cannot be written.
  Observer& trace_observer();
  Recorder& recorder();
  // Null where ranks are threads, or there is no page.
  RankLanes* lanes();
  // Of the page; empty without one.
  const std::string& url() const;

  // Ends lines of progress and monitors. Again: nothing.
  void Close(absl::Duration patience);

 private:
  struct Parts;

  explicit Watch(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_WATCH_H_
