#ifndef BRIGADE_COLLECTIVES_TUNING_ROUTE_H_
#define BRIGADE_COLLECTIVES_TUNING_ROUTE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/tuning/topology.h"

namespace brigade::collectives {

// The ways that a collective's data can go; more than can be run today, to compare. Of several ports
// of a rank inside its node only kDirect and rings both ways use more than one.
//
// kDirect             Everybody with everybody: one step, two of an all-reduce.
// kDirectOneShot      Everybody sends all it has to everybody, who adds it up. All-reduce only.
// kRing               Node by node: one port of a node leads to the next, of two where there are both ways.
// kInterleavedRing    Ranks dealt to the nodes in turn: every hop changes the node. What a ring costs that does not know
//                     of nodes. Nodes of one size.
// kRingPerPort        A node-ordered ring for each port of a node, each with its share of the data.
// kOpposedRings       Half the data each way round.
// kBidirectionalRing  The partial sums of both ways meet at the block's owner: half the steps.
// kHalvingDoubling    Pairs, at distances 1, 2, 4, ... with half, a quarter, ... of the data, and back. Powers of two.
// kDoubleTree         Two trees over nodes, each with half the data; a chain inside nodes. All-reduce only. Data follow
//                     each other so closely that steps and bytes count once.
// kHierarchical       A ring inside the node, one over nodes for each slice, a ring inside: class Hierarchical with kRing in
//                     both levels, a call each. Nodes of one size.
enum class Route : uint8_t {
  kDirect,
  kDirectOneShot,
  kRing,
  kInterleavedRing,
  kRingPerPort,
  kOpposedRings,
  kBidirectionalRing,
  kHalvingDoubling,
  kDoubleTree,
  kHierarchical,
};
inline constexpr Route kRoutes[] = {
    Route::kDirect,
    Route::kDirectOneShot,
    Route::kRing,
    Route::kInterleavedRing,
    Route::kRingPerPort,
    Route::kOpposedRings,
    Route::kBidirectionalRing,
    Route::kHalvingDoubling,
    Route::kDoubleTree,
    Route::kHierarchical,
};

// "direct", "ring_per_port", ...
absl::string_view Name(Route route);

// The algorithm that goes this way, if one call of a communicator does.
std::optional<Algorithm> AlgorithmOf(Route route);

// FailedPrecondition with the reason if this route does not exist for the operation and these nodes.
absl::Status CheckExists(const Topology& topology, Route route, CollectiveKind operation);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_TUNING_ROUTE_H_
