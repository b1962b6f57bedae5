#ifndef BRIGADE_ZERO_SHARD_GROUPS_H_
#define BRIGADE_ZERO_SHARD_GROUPS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/zero/options.h"

namespace brigade::zero {

// Ranks that have the same weights, in groups that share a state each (ZeroOptions::shard_ranks):
// the first `shard_ranks` of them are group 0, and so on, so that with ranks in the order of nodes
// a group lies in a node where it fits one. Likewise, in a group, those near each other
// (ZeroOptions::hpz_ranks), and nodes (ZeroOptions::node_ranks).
//
//   auto groups = ShardGroups::Create(ranks, options.shard_ranks);
//   ZeroOptimizer::Create(model, options, *groups->shards, context, compute,
//                         groups->Outer(ranks));
//
// Errors       A communicator's error ends that one alone. Who gets it ends the others too
//              (Abort), so that no rank waits in one of them.
struct ShardGroups {
  // What each rank gives to Communicator::Split for these groups, for those who split otherwise;
  // `near` where hpz_ranks, `node` and `nodes` where node_ranks are not 0.
  struct Colors {
    int shards, between;
    int near = 0, node = 0, nodes = 0;
  };
  static Colors ColorsOf(int rank, int shard_ranks, int hpz_ranks, int node_ranks);

  // The ranks of this rank's group; and of all groups those with this one's place, by group.
  std::unique_ptr<collectives::Communicator> shards, between;
  // Of its group those near it; null without them.
  std::unique_ptr<collectives::Communicator> near;
  // Of its group those of its node, and those that have its place in each; null without them.
  std::unique_ptr<collectives::Communicator> node, nodes;

  // A call of all `ranks`, on the host. 0 shard_ranks: all; 0 hpz_ranks, node_ranks: none.
  // InvalidArgument, on all, for a number that does not divide the ranks that it is of, and if they
  // give several.
  static absl::StatusOr<ShardGroups> Create(collectives::Communicator& ranks, int shard_ranks,
                                            int hpz_ranks = 0, int node_ranks = 0);

  // For ZeroOptimizer::Create, where the model is not shared (ZeroOptions::model_ranks).
  OuterGroups Outer(collectives::Communicator& ranks) const {
    return {.world = &ranks,
            .between = between.get(),
            .near = near.get(),
            .node = node.get(),
            .nodes = nodes.get()};
  }
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_SHARD_GROUPS_H_
