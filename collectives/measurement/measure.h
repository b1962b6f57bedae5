#ifndef BRIGADE_COLLECTIVES_MEASUREMENT_MEASURE_H_
#define BRIGADE_COLLECTIVES_MEASUREMENT_MEASURE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// The machine that a running job is on, for Select and SelectCodec: who shares a node, and what
// calls, messages, bytes, sums and codes cost there, on this engine. A call of all ranks; waits.
// `node`: any number that this rank's node has and no other.
//
// Method       Rings inside all nodes at once, then over nodes, of all ranks at once: what ranks
//              share in a collective (cores, memory, a node's links) they share here. Times of the
//              slowest rank, medians of rounds. Calls of nodes' ranks and of one rank of each node
//              are timed by turns too, as a hierarchy makes them. Ports of a node are the ranks
//              that can send as fast as one alone, taken together.
// Result       The same bits on all ranks, so that all choose alike. A rank's ports inside a node
//              are taken as 1. A level that no two ranks share has the figures of the other. Where
//              noise swallows what a large call takes beyond a small one, its bytes count as
//              half of it: bandwidth is at most twice what the large call shows.
// Time         Some thousand small calls, and some 30 large ones, whose bytes take 20 to 80 ms or
//              are kMostMeasuredBytes: 1 to 3 s where a step takes a tenth of a millisecond.
// Memory       kMostMeasuredBytes, of purpose communication, and two communicators, until it
//              returns.
// Errors       Those of Communicator, and InvalidArgument on all ranks if they are not numbered
//              node by node.
absl::StatusOr<Topology> MeasureTopology(Communicator& world, int64_t node,
                                         device::Context& context, device::Stream& stream);

inline constexpr int64_t kMostMeasuredBytes = int64_t{8} << 20;

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_MEASUREMENT_MEASURE_H_
