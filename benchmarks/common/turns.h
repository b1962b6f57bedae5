#ifndef BRIGADE_BENCHMARKS_COMMON_TURNS_H_
#define BRIGADE_BENCHMARKS_COMMON_TURNS_H_

// Ranks that are threads of this process, and what they run in turn.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/collectives/engines/threads/thread_group.h"

namespace brigade::benchmarks {

// What takes turns.
struct Turn {
  std::string name;
  // Of all ranks: timed, from when all begin until all have ended.
  std::function<absl::Status()> run;
  // Before and after it, not timed; on each rank.
  std::function<absl::Status()> before = {};
  std::function<absl::Status()> after = {};
  // What these need.
  std::shared_ptr<void> keep = {};
};

// Of each round: how long a turn took, and the processor time of all threads meanwhile.
struct TurnTimes {
  Seconds wall, processor;
};

// Makes each rank's turns and lets them take turns: `rounds` rounds, every other one in the
// opposite order, and one before that is not counted. Ends the process on an error.
using CreateTurns =
    std::function<absl::StatusOr<std::vector<Turn>>(int rank, collectives::ThreadGroup& group)>;
absl::StatusOr<std::vector<TurnTimes>> TakeTurns(int ranks, int rounds, const CreateTurns& create);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_TURNS_H_
