#ifndef BRIGADE_COLLECTIVES_COMPRESSED_NODE_GROUPS_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_NODE_GROUPS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"

namespace brigade::collectives {

// The two levels of a group whose ranks are numbered node by node, for what goes in two hops; or
// none. They belong to the caller.
struct NodeCommunicators {
  // The ranks of this one's node, and those that have its place in each node.
  Communicator* inside = nullptr;
  Communicator* between = nullptr;

  bool present() const { return inside != nullptr && between != nullptr; }
};

// InvalidArgument unless there are none, or they are those of the group's nodes.
absl::Status CheckNodes(const char* operation, const Communicator& communicator,
                        const NodeCommunicators& nodes);

// The same with its communicators.
struct NodeGroups {
  std::unique_ptr<Communicator> inside, between;

  // A call of all ranks, on the host. Nodes are those that Algorithm::kHierarchical takes: of the
  // communicator's topology. Where it has none, or nodes of different sizes, or there is one node,
  // or one rank on each, there are no groups and nothing is called.
  static absl::StatusOr<NodeGroups> Create(Communicator& communicator);

  NodeCommunicators communicators() const { return {inside.get(), between.get()}; }
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_NODE_GROUPS_H_
