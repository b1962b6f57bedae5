#include "brigade/collectives/compressed/node_groups.h"

#include "absl/strings/str_cat.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {

absl::Status CheckNodes(const char* operation, const Communicator& communicator,
                        const NodeCommunicators& nodes) {
  if (nodes.inside == nullptr && nodes.between == nullptr) return absl::OkStatus();
  if (!nodes.present()) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": there is a communicator ",
                                                   nodes.inside != nullptr
                                                       ? "inside nodes, but none between them"
                                                       : "between nodes, but none inside them"));
  }
  const Communicator &inside = *nodes.inside, &between = *nodes.between;
  if (inside.size() * between.size() == communicator.size() &&
      between.rank() * inside.size() + inside.rank() == communicator.rank()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(operation, ": rank ", communicator.rank(), " of ", communicator.size(),
                   " has the place ", inside.rank(), " of ", inside.size(), " in node ",
                   between.rank(), " of ", between.size(), ": they are not numbered node by node"));
}

absl::StatusOr<NodeGroups> NodeGroups::Create(Communicator& communicator) {
  NodeGroups groups;
  const auto call = communicator.Resolve(
      {.kind = CollectiveKind::kAllGather, .algorithm = Algorithm::kHierarchical});
  if (!call.ok() || call->algorithm != Algorithm::kHierarchical) return groups;
  const int rank = communicator.rank(), ranks_per_node = call->ranks_per_node;
  BRIGADE_ASSIGN_OR_RETURN(groups.inside, communicator.Split(rank / ranks_per_node, 0));
  BRIGADE_ASSIGN_OR_RETURN(groups.between, communicator.Split(rank % ranks_per_node, 0));
  return groups;
}

}  // namespace brigade::collectives
