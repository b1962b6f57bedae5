#ifndef BRIGADE_EXAMPLES_GPT_TRAINING_H_
#define BRIGADE_EXAMPLES_GPT_TRAINING_H_

// train/'s calls with a job's own model and corpus.

#include "absl/status/statusor.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/examples/gpt/task.h"
#include "brigade/train/trainer.h"
#include "brigade/train/training.h"

namespace brigade::gpt {

inline absl::StatusOr<train::Outcome> TrainOnThreads(const Job& job, int ranks,
                                                     const train::TrainerOptions& options) {
  return train::TrainOnThreads(job, Task(job), ranks, options);
}

// As one process of those that a launcher has started, over Gloo or NCCL. Errors also name a rank
// that is gone.
inline absl::StatusOr<train::Outcome> TrainAsProcess(const Job& job,
                                                     const collectives::LaunchInfo& launch_info,
                                                     const train::TrainerOptions& options) {
  const Task task(job);
  BRIGADE_ASSIGN_OR_RETURN(const auto trainer,
                           train::Trainer::Create(job, task, launch_info, options));
  return trainer->Fit();
}

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TRAINING_H_
