#ifndef BRIGADE_COLLECTIVES_MEASUREMENT_NODES_H_
#define BRIGADE_COLLECTIVES_MEASUREMENT_NODES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"

namespace brigade::collectives {

// Who shares a node.
struct Nodes {
  // Of each node; nodes in the order of their first ranks.
  std::vector<std::vector<int>> ranks;
  // This rank is ranks[node][place].
  int node = 0, place = 0;
};

// A call of all ranks, on the host. `node`: any number that this rank's node has and no other.
absl::StatusOr<Nodes> FindNodes(Communicator& world, int64_t node);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_MEASUREMENT_NODES_H_
