#ifndef BRIGADE_TRAIN_COMPARISONS_H_
#define BRIGADE_TRAIN_COMPARISONS_H_

// Comparisons of what several ranks have alike (digests/copies.h), as a job asks for them.

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/train/job.h"

namespace brigade::train {

// Steps between two comparisons of what several ranks have alike; 0: none. The config's
// brigade.verify_replicas counts where the job itself says nothing.
inline int64_t VerifyEvery(const Job& job) {
  return job.digests.verify_every > 0 ? job.digests.verify_every : job.config.verify_replicas;
}

// InvalidArgument for a job that asks for them where ranks have nothing alike, whatever the model:
// one rank, stage 3 without groups of a whole state each, or local steps. Of tensor ranks and of
// stages of a pipeline only the model says what they have alike.
absl::Status CheckComparisons(const Job& job);

// What a job is told that asks for them where ranks have nothing alike: why, and what to change.
// Of tensor ranks and stages of a pipeline: where the model gives them nothing in common.
absl::Status NothingAlike(const Job& job);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_COMPARISONS_H_
