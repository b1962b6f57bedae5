#ifndef BRIGADE_ZERO_SHARD_GROUPS_H_
#define BRIGADE_ZERO_SHARD_GROUPS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"

namespace brigade::zero {

// Ranks that have the same weights, in groups that share a state each (ZeroOptions::shard_ranks):
// the first `shard_ranks` of them are group 0, and so on, so that with ranks in the order of nodes
// a group lies in a node where it fits one.
//
//   auto groups = ShardGroups::Create(ranks, options.shard_ranks);
//   ZeroOptimizer::Create(model, options, *groups->shards, context, compute,
//                         {.world = &ranks, .between = groups->between.get()});
//
// Errors       A communicator's error ends that one alone. Who gets it ends the others too
//              (Abort), so that no rank waits in one of them.
struct ShardGroups {
  // The ranks of this rank's group; and of all groups those with this one's place, by group.
  std::unique_ptr<collectives::Communicator> shards, between;

  // A call of all `ranks`, on the host. InvalidArgument, on all, for a number that does not divide
  // theirs, and if they give several.
  static absl::StatusOr<ShardGroups> Create(collectives::Communicator& ranks, int shard_ranks);
};

// What Create checks: InvalidArgument naming both numbers.
absl::Status CheckShardRanks(int shard_ranks, int ranks);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_SHARD_GROUPS_H_
