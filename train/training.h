#ifndef BRIGADE_TRAIN_TRAINING_H_
#define BRIGADE_TRAIN_TRAINING_H_

#include <atomic>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/init.h"
#include "brigade/train/job.h"
#include "brigade/train/observers/observer.h"
#include "brigade/train/observers/rank_lanes.h"
#include "brigade/train/summary.h"
#include "brigade/train/task.h"
#include "brigade/train/times/recorder.h"

namespace brigade::train {

// The observers of a training, and the flag that stops it.
struct Watchers {
  // Rank 0's observer, or null.
  Observer* observer = nullptr;
  Recorder& recorder;
  const std::atomic<bool>& stop;
  // On rank 0, or null: called at the end, before any rank leaves, because mpirun kills all when
  // the first does.
  std::function<void(const Outcome&)> report = nullptr;
  // Of processes, or null: they are started and ended with the training.
  RankLanes* lanes = nullptr;
};

// How long a rank may be silent in a collective before the others give up.
inline constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);

// Trains with `ranks` threads of this process, on the CPU or on one GPU, through the threads
// engine. Returns when all have ended. The error is that of the rank where it began.
absl::StatusOr<Outcome> TrainOnThreads(const Job& job, const Task& task, int ranks,
                                       const Watchers& watchers,
                                       absl::Duration timeout = kDefaultTimeout);

// Trains as one process of those that a launcher has started, over Gloo or NCCL. Errors also name a
// rank that is gone.
absl::StatusOr<Outcome> TrainAsProcess(const Job& job, const Task& task,
                                       const collectives::LaunchInfo& launch_info,
                                       collectives::Backend backend, const Watchers& watchers,
                                       absl::Duration timeout = kDefaultTimeout);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TRAINING_H_
