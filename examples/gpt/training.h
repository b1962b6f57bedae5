#ifndef BRIGADE_EXAMPLES_GPT_TRAINING_H_
#define BRIGADE_EXAMPLES_GPT_TRAINING_H_

// train/training.h with a job's own model and corpus.

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/examples/gpt/task.h"
#include "brigade/train/training.h"

namespace brigade::gpt {

inline absl::StatusOr<train::Outcome> TrainOnThreads(
    const Job& job, int ranks, const train::Watchers& watchers,
    absl::Duration timeout = train::kDefaultTimeout) {
  return train::TrainOnThreads(job, Task(job), ranks, watchers, timeout);
}

inline absl::StatusOr<train::Outcome> TrainAsProcess(
    const Job& job, const collectives::LaunchInfo& launch_info, collectives::Backend backend,
    const train::Watchers& watchers, absl::Duration timeout = train::kDefaultTimeout) {
  return train::TrainAsProcess(job, Task(job), launch_info, backend, watchers, timeout);
}

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TRAINING_H_
