#ifndef BRIGADE_ZERO_INTERNAL_COMMUNICATOR_CHECK_H_
#define BRIGADE_ZERO_INTERNAL_COMMUNICATOR_CHECK_H_

// Checks that communicators are what the options say of groups of ranks.

#include "absl/status/status.h"
#include "brigade/collectives/communicator.h"
#include "brigade/zero/options.h"

namespace brigade::zero::internal {

// InvalidArgument naming the first option that is not so. Calls no other rank.
absl::Status CheckCommunicators(const ZeroOptions& options, const collectives::Communicator& group,
                                const OuterGroups& outer);

// A call of the ranks near each other: InvalidArgument on all of them unless they follow each other
// in their group, each at its place.
absl::Status AgreeOnNear(const collectives::Communicator& group, int shard_group,
                         collectives::Communicator& near);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_COMMUNICATOR_CHECK_H_
