#ifndef BRIGADE_COLLECTIVES_TUNING_TOPOLOGY_H_
#define BRIGADE_COLLECTIVES_TUNING_TOPOLOGY_H_

#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace brigade::collectives {

inline constexpr int kMaxModelledRanks = 1 << 20;

// What a message meets on its way. A port is one link outwards; both directions at once cost
// nothing.
struct Level {
  // From the call of the sender to the use by the receiver, of the smallest message.
  double latency_s = 0;
  // Of one port, in one direction.
  double bytes_per_s = 0;
  // Of a rank, for the level inside nodes; of a node, for the level between them.
  int ports = 1;
};

// Who the ranks are and what lies between them: nodes of ranks, numbered node by node. A node with
// fewer ports than ranks deals the ranks to ports in turn, and those of one port share its
// bandwidth.
struct Topology {
  std::vector<int> ranks_of_node;
  Level inside;
  Level between;
  // By a rank.
  double reduced_bytes_per_s = std::numeric_limits<double>::infinity();
  // That a rank's codecs (kernels/block_quant, sign_pack) read and write: its memory's, or less
  // where their arithmetic takes longer. 0: not known.
  double memory_bytes_per_s = 0;
  // Of a rank, for each message but the first that it sends in one step.
  double message_s = 0;
  // Of a call of all ranks: until data can go.
  double call_s = 0;

  int nodes() const { return static_cast<int>(ranks_of_node.size()); }
  int ranks() const;
  // All nodes have as many ranks.
  bool Even() const;
};

// `ranks` on nodes of `ranks_per_node`; the last node has those that are left.
std::vector<int> RanksOfNodes(int ranks, int ranks_per_node);

// The nodes of a running job, from every rank's LaunchInfo::local_rank (bootstrap/launch_info.h) in
// the order of ranks. Each rank knows only its own: gather them, so that all have one topology and
// choose alike.
//
// Errors       InvalidArgument naming the rank where they are not counted node by node: 0, 1, ...,
//              0, 1, ...
absl::StatusOr<std::vector<int>> RanksOfNodes(absl::Span<const int> local_ranks);

// The topology of some of the ranks, in the order given; none if in that order they are not
// numbered node by node. What they measured together, the calls of all ranks, is taken for theirs.
std::optional<Topology> SubsetOf(const Topology& topology, absl::Span<const int> ranks);

// Reads a machine:
//
//   {"source": "where these figures are from",
//    "inside": {"latency_us": 3.4, "gigabytes_per_s": 370},
//    "between": {"latency_us": 14, "gigabytes_per_s": 48, "ports": 8},
//    "reduced_gigabytes_per_s": 1500,
//    "memory_gigabytes_per_s": 3350,
//    "message_us": 1,
//    "call_us": 8,
//    "ranks_of_node": [8, 8]}
//
// GB is 1e9 bytes. Optional are source, ports (1), message_us, call_us (0), reduced_gigabytes_per_s
// (without it a sum costs nothing), memory_gigabytes_per_s (without it nothing is said of codecs),
// and ranks_of_node (none: for the caller to set).
//
// Errors       InvalidArgument naming the key and what it must be, or the key that does not exist.
absl::StatusOr<Topology> TopologyFromJson(absl::string_view text);

// InvalidArgument without nodes, for a node without ranks, for more than kMaxModelledRanks, and for
// a level with a figure that no link has.
absl::Status Validate(const Topology& topology);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_TUNING_TOPOLOGY_H_
