#ifndef BRIGADE_TRAIN_VERIFY_EVERY_H_
#define BRIGADE_TRAIN_VERIFY_EVERY_H_

#include <cstdint>

#include "brigade/train/job.h"

namespace brigade::train {

// Steps between two comparisons of what several ranks have alike; 0: none. The config's
// brigade.verify_replicas counts where the job itself says nothing.
inline int64_t VerifyEvery(const Job& job) {
  return job.digests.verify_every > 0 ? job.digests.verify_every : job.config.verify_replicas;
}

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_VERIFY_EVERY_H_
