#ifndef BRIGADE_REPLICAS_REPLICA_GROUPS_H_
#define BRIGADE_REPLICAS_REPLICA_GROUPS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"

namespace brigade::replicas {

// All ranks of a training as replicas: the first ranks are replica 0, and so on, each with as many.
//
//   auto groups = ReplicaGroups::Create(world, 2);
//   auto zero = zero::ZeroOptimizer::Create(model, options, *groups->inside, context, compute);
//   auto outer = OuterOptimizer::Create(**zero, outer_options, *groups->inside, context);
//   (*zero)->InitializeParameters(...);
//   (*outer)->Join(*groups->between);
struct ReplicaGroups {
  // What each rank gives to Communicator::Split, for those who split otherwise.
  struct Colors {
    int inside, between;
  };
  static Colors ColorsOf(int rank, int ranks_of_replica);

  // The ranks of this rank's replica; and of all replicas those with this one's place, in the order
  // of replicas.
  std::unique_ptr<collectives::Communicator> inside, between;

  // A call of all ranks, on the host. InvalidArgument, on all, for a number of replicas that does
  // not divide the ranks, and if they give several.
  static absl::StatusOr<ReplicaGroups> Create(collectives::Communicator& world, int replicas);
};

}  // namespace brigade::replicas

#endif  // BRIGADE_REPLICAS_REPLICA_GROUPS_H_
