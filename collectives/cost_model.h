#ifndef BRIGADE_COLLECTIVES_COST_MODEL_H_
#define BRIGADE_COLLECTIVES_COST_MODEL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/call.h"
#include "brigade/collectives/topology.h"

namespace brigade::collectives {

// The ways that a collective's data can go; more than there are algorithms to run today, to compare.
//
// kDirect             Everybody with everybody: one step, two of an all-reduce.
// kDirectOneShot      Everybody sends all it has to everybody, who adds it up. All-reduce only.
// kRing               Node by node: one port of a node leads to the next.
// kInterleavedRing    Ranks dealt to the nodes in turn: every hop changes the node. What a ring costs that does not know
//                     of nodes. Nodes of one size.
// kRingPerPort        A node-ordered ring for each port of a node, each with its share of the data.
// kBidirectionalRing  Half the data each way round.
// kMeetingRings       The partial sums of both ways meet at the block's owner: half the steps.
// kHalvingDoubling    Pairs, at distances 1, 2, 4, ... with half, a quarter, ... of the data, and back. Powers of two.
// kDoubleTree         Two trees over nodes, each with half the data; a chain inside nodes. All-reduce only.
// kHierarchical       A ring inside the node, one over nodes for each slice, a ring inside. Nodes of one size.
enum class Route : uint8_t {
  kDirect,
  kDirectOneShot,
  kRing,
  kInterleavedRing,
  kRingPerPort,
  kBidirectionalRing,
  kMeetingRings,
  kHalvingDoubling,
  kDoubleTree,
  kHierarchical,
};
inline constexpr Route kRoutes[] = {
    Route::kDirect,      Route::kDirectOneShot,     Route::kRing,         Route::kInterleavedRing,
    Route::kRingPerPort, Route::kBidirectionalRing, Route::kMeetingRings, Route::kHalvingDoubling,
    Route::kDoubleTree,  Route::kHierarchical,
};

// "direct", "ring_per_port", ...
absl::string_view Name(Route route);

// The algorithm that goes this way, if a communicator has one.
std::optional<Algorithm> AlgorithmOf(Route route);

// What a level has to do in a phase: on the longest path, and at the port that sends most.
struct Load {
  int64_t steps = 0;   // messages one after the other
  double bytes = 0;    // sent through the port
  int64_t queued = 0;  // messages of the port that wait for another of the same step
};

// A part of a collective that begins when the one before has ended. Inside it both levels work at the same time.
struct Phase {
  Load inside;
  Load between;
  double reduced_bytes = 0;  // added up by a rank
};

// The phases of all_reduce, reduce_scatter or all_gather of `bytes`, of the whole array in each case. Blocks are
// taken as equal: real ones differ by 16 elements.
//
// Errors       InvalidArgument for a topology that Validate refuses, negative bytes, another operation.
//              FailedPrecondition with the reason if this route does not exist here.
// Source       Thakur, Rabenseifner and Gropp, 2005 (direct, rings, halving-doubling); Sanders, Speck and Traeff, 2009
//              (double tree, taken as balanced); Patarasuk and Yuan, 2009 (bytes of rings).
absl::StatusOr<std::vector<Phase>> PhasesOf(const Topology& topology, Route route,
                                            CallKind operation, int64_t bytes);

// Sum over phases of: steps times latency of both levels, plus the longer of both levels' bytes over bandwidth plus
// queued messages, plus the time to reduce.
double SecondsOf(const Topology& topology, const std::vector<Phase>& phases);

// Bytes per second that a rank's link would have to have in an ideal ring: comparable over numbers of ranks.
double BusBandwidth(CallKind operation, int ranks, int64_t bytes, double seconds);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COST_MODEL_H_
