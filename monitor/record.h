#ifndef BRIGADE_MONITOR_RECORD_H_
#define BRIGADE_MONITOR_RECORD_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/requirements.h"

namespace brigade::monitor {

// One number of a training at one moment.
struct Value {
  enum class Kind : uint8_t {
    kNumber,
    // True or false: 1 or 0 where there are only numbers.
    kFlag,
    // Counted since the training was started. A file that a resumed training goes on with has the
    // sum of all its starts.
    kSinceStart,
  };
  // In event files, CSV and the page, with its unit at the end where it has one:
  // "Train/Samples/train_loss", "Train/Samples/elapsed_time_ms_forward". Empty: not there.
  std::string tag = {};
  double value = 0;
  // In JSON lines: "loss". Empty: not there.
  std::string key = {};
  Kind kind = Kind::kNumber;
};

// Where a training is: steps made, and texts that they have had.
struct Position {
  int64_t step = 0;
  int64_t samples = 0;
};

// The values of one moment. What belongs to a step is one record: JSON lines has a line for each.
struct Record {
  Position at = {};
  // Of the system's clock, in seconds since 1970.
  double wall_time = 0;
  std::vector<Value> values = {};
  // A training that is resumed at this step makes the record again: an evaluation. Else a training
  // makes it on its way to the step, and one that is resumed at the step does not.
  bool is_made_again = false;
};

// What the ranks of this process did in one step.
struct Timeline {
  struct Span {
    // "F5'", "B5'" of passes (parallel/pipeline/item.h), "update", "exchange".
    std::string name = {};
    // Since the step began, in seconds.
    double begin = 0;
    double end = 0;
  };
  struct Lane {
    // "rank 0".
    std::string name = {};
    // In order of time.
    std::vector<Span> passes = {};
    // Collectives and updates, beside passes or between them.
    std::vector<Span> others = {};
  };
  int64_t step = 0;
  double seconds = 0;
  // Where the step's time went on the first rank: names and seconds, which add up to `seconds`.
  std::vector<std::pair<std::string, double>> split = {};
  std::vector<Lane> lanes = {};
};

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_RECORD_H_
