#ifndef BRIGADE_COLLECTIVES_AGREE_H_
#define BRIGADE_COLLECTIVES_AGREE_H_

// What ranks tell each other on the host before they go on together. Calls of all ranks; errors are
// the communicator's.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"

namespace brigade::collectives {

// The bytes of all ranks, in the order of ranks, of any length each.
absl::StatusOr<std::vector<std::string>> AllGatherBytes(const std::string& bytes,
                                                        Communicator& communicator);

// OK if all ranks give OK; else this rank's own error, or, if it has none, that of the first rank
// that has one, with its number: at most 500 bytes of it, made printable.
absl::Status AgreeOnStatus(const absl::Status& mine, Communicator& communicator);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_AGREE_H_
