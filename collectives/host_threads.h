#ifndef BRIGADE_COLLECTIVES_HOST_THREADS_H_
#define BRIGADE_COLLECTIVES_HOST_THREADS_H_

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"

namespace brigade::collectives {

// A call of all ranks; waits: how many threads this rank may keep busy on its host, at least 1. Of
// the processors that the calling thread may use, its share among the ranks of this host that may
// use the same ones; ranks that a launcher has bound to processors of their own share nothing.
// Errors are the communicator's.
absl::StatusOr<int> ThreadsOfRank(Communicator& communicator);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_HOST_THREADS_H_
