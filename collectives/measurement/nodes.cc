#include "brigade/collectives/measurement/nodes.h"

#include <map>

#include "brigade/device/status_macros.h"

namespace brigade::collectives {

absl::StatusOr<Nodes> FindNodes(Communicator& world, int64_t node) {
  BRIGADE_ASSIGN_OR_RETURN(auto node_of_rank, world.AllGatherHost({node}));
  Nodes nodes;
  std::map<int64_t, size_t> numbers;
  for (int rank = 0; rank < world.size(); ++rank) {
    const int64_t name = node_of_rank[static_cast<size_t>(rank)];
    const size_t number = numbers.emplace(name, nodes.ranks.size()).first->second;
    if (number == nodes.ranks.size()) nodes.ranks.emplace_back();
    std::vector<int>& ranks = nodes.ranks[number];
    if (rank == world.rank()) {
      nodes.node = static_cast<int>(number);
      nodes.place = static_cast<int>(ranks.size());
    }
    ranks.push_back(rank);
  }
  return nodes;
}

}  // namespace brigade::collectives
