#ifndef BRIGADE_TRAIN_TIMES_STEP_TIMES_H_
#define BRIGADE_TRAIN_TIMES_STEP_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/train/times/pass_times.h"
#include "brigade/train/times/time_split.h"

namespace brigade::train {

// What one rank did in one step: from the begin of its first forward pass to that of the next
// step's.
struct StepTime {
  struct Span {
    std::string name;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  // The first step is 1.
  int64_t step = 0;
  // Of the steady clock.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  Seconds split = {};
  // Of all stages of the model that the rank has.
  PassSeconds passes = {};
  // Computations of the rank's list (MarkPass), each from its first operation to its last.
  std::vector<Span> lists = {};
  // "exchange", "update": collectives, and the optimizer, wherever they are, one behind the other.
  std::vector<Span> others = {};
};

// Cuts what a rank's streams did into steps, as their operations come in.
//
// Memory       Operations wait here until the second step after theirs has begun: by then those
//              that reach into it have ended too. Of streams without marks some hundred thousand
//              wait at most.
// Threads      One at a time.
class StepTimes {
 public:
  // The steps made before.
  explicit StepTimes(int64_t steps) : step_(steps) {}

  // A stream's next operations, in order of time. Their names outlive this object.
  void Add(int stream, absl::Span<const device::TracedOperation> operations);

  // The steps that are known by now, in their order, each once.
  std::vector<StepTime> Take();
  // The rest: all operations have been added. Nothing is added after it.
  std::vector<StepTime> Finish();

 private:
  struct Stream {
    std::deque<device::TracedOperation> operations;
    // The mark of a pass (MarkPass), until the first operation comes that is no wait: it stands
    // there then.
    std::optional<device::TracedOperation> mark;
  };
  struct Begin {
    // Of the step's first operation; -1: the mark has come, and it has not.
    int64_t ns = -1;
  };

  StepTime Cut(int64_t begin_ns, int64_t end_ns) const;
  void DropUntil(int64_t ns);

  // The last step that was given.
  int64_t step_;
  std::vector<Stream> streams_;
  int64_t waiting_ = 0;
  // Of steps that have begun, and were not given.
  std::deque<Begin> begins_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TIMES_STEP_TIMES_H_
