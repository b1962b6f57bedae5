#include "brigade/replicas/replica_groups.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"

namespace brigade::replicas {

ReplicaGroups::Colors ReplicaGroups::ColorsOf(int rank, int ranks_of_replica) {
  return {.inside = rank / ranks_of_replica, .between = rank % ranks_of_replica};
}

absl::StatusOr<ReplicaGroups> ReplicaGroups::Create(collectives::Communicator& world,
                                                    int replicas) {
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnLines({absl::StrCat(replicas, " replicas")}, world));
  if (replicas < 1 || world.size() % replicas != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("replicas: ", replicas, " replicas do not divide ", world.size(), " ranks"));
  }
  const Colors colors = ColorsOf(world.rank(), world.size() / replicas);
  ReplicaGroups groups;
  BRIGADE_ASSIGN_OR_RETURN(groups.inside, world.Split(colors.inside, 0));
  BRIGADE_ASSIGN_OR_RETURN(groups.between, world.Split(colors.between, 0));
  return groups;
}

}  // namespace brigade::replicas
