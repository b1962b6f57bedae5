#ifndef BRIGADE_MONITOR_MONITOR_H_
#define BRIGADE_MONITOR_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "brigade/monitor/back_end.h"
#include "brigade/monitor/record.h"

namespace brigade::monitor {

class TaskQueue;

// What became of the records of one back end.
struct BackEndReport {
  std::string name;
  int64_t written = 0;
  // Not taken, because so many waited already, or left unwritten at the end.
  int64_t dropped = 0;
  // Refused by the back end.
  int64_t failed = 0;
  // The first error; Start's and Finish's too.
  absl::Status error;
  // It was still busy when patience ended.
  bool is_stuck = false;

  // What is missing and why, in a line; empty if nothing is.
  std::string Trouble() const;
};

struct MonitorOptions {
  // 4096: records of a minute at steps of 15 ms. The trainer's have about 4 kB each.
  size_t capacity = 4096;
  // Told the first error of each back end, and the first record that had no room, at once and on a
  // thread of its own; null: only reports have them.
  std::function<void(const std::string& text)> on_trouble = nullptr;
};

// Hands the records of a training to its back ends, each on a thread of its own: a full disk, a
// slow one, or one that does not answer costs values, never a step, and never those of another back
// end.
//
// Host waits   Start and Publish never wait for a back end; Drain and Close at most their patience.
// Bounded      At most MonitorOptions::capacity records wait for each back end. What does not fit
//              is dropped and counted.
// Threads      Safe from any thread, except Start and Close.
class Monitor {
 public:
  using Options = MonitorOptions;

  // Without back ends it does nothing.
  explicit Monitor(std::vector<std::unique_ptr<BackEnd>> back_ends, Options options = {});
  // Closes without patience.
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Comes first; and again where the training goes back to an earlier state. It has a place of its
  // own, however many records wait: files never have a step twice.
  void Start(const Position& from);
  void Publish(Record record);
  void Publish(Timeline timeline);

  // Waits until all that was published is written; false if `patience` ends before.
  bool Drain(absl::Duration patience);
  // Ends. In the order of the back ends. Again: with what has been published since, which is
  // dropped, and what was still being written.
  std::vector<BackEndReport> Close(absl::Duration patience);

 private:
  struct Worker;

  std::vector<std::unique_ptr<Worker>> workers_;
  // Of on_trouble; shared with what may outlive the monitor.
  std::shared_ptr<TaskQueue> teller_;
};

// Of the system's clock, as records have it.
double WallSeconds();

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_MONITOR_H_
