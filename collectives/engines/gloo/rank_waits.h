#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_RANK_WAITS_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_RANK_WAITS_H_

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives::internal {

class FailureDetector;

// What one rank waits for, in all groups that it is in. A rank that waits in one of them cannot
// come to a call of another one, and is not to blame there.
//
// Threads      Calls from any.
class RankWaits {
 public:
  void Add(const FailureDetector& group);
  // When it returns, nobody asks the group any more.
  void Remove(const FailureDetector& group);

  // How long this rank may still wait in another group than this one, until that one ends with an
  // error; 0 if it waits in none.
  absl::Duration Elsewhere(const FailureDetector& group) const;

 private:
  mutable device::Mutex mutex_;
  std::vector<const FailureDetector*> groups_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_RANK_WAITS_H_
