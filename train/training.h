#ifndef BRIGADE_TRAIN_TRAINING_H_
#define BRIGADE_TRAIN_TRAINING_H_

#include "absl/status/statusor.h"
#include "brigade/train/job.h"
#include "brigade/train/summary.h"
#include "brigade/train/task.h"
#include "brigade/train/trainer.h"

namespace brigade::train {

// Trains with `ranks` threads of this process, on the CPU or on one GPU, through the threads
// engine. Returns when all have ended. The error is that of the rank where it began. Of the
// options, backend and group are not looked at.
absl::StatusOr<Outcome> TrainOnThreads(const Job& job, const Task& task, int ranks,
                                       const TrainerOptions& options);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TRAINING_H_
