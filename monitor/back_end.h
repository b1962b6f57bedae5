#ifndef BRIGADE_MONITOR_BACK_END_H_
#define BRIGADE_MONITOR_BACK_END_H_

#include <string>

#include "absl/status/status.h"
#include "brigade/monitor/record.h"

namespace brigade::monitor {

// Where records go: event files, CSV, JSON lines, a page.
//
// Threads      One thread calls all of it, which is not the training's: a back end may wait.
// Errors       Name what they are of. A record that was refused is lost, the next one is tried.
class BackEnd {
 public:
  virtual ~BackEnd() = default;

  // For messages: "TensorBoard's events in runs/gpt".
  virtual std::string name() const = 0;

  // Comes first: where the training begins or, with steps, goes on; and again where it goes back
  // to an earlier state. What there is of later steps will come again. After an error nothing is
  // written.
  virtual absl::Status Start(const Position& from) = 0;
  virtual absl::Status Write(const Record& record) = 0;
  // For those that show it.
  virtual absl::Status Show(const Timeline& /*timeline*/) { return absl::OkStatus(); }
  // Comes last: what only now turns out not to be written, as where a disk of another machine is
  // full. Not behind an error of Start.
  virtual absl::Status Finish() { return absl::OkStatus(); }
};

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_BACK_END_H_
