#ifndef BRIGADE_COLLECTIVES_OPTIONS_H_
#define BRIGADE_COLLECTIVES_OPTIONS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/kernels/reduce/reduce_math.h"

namespace brigade::collectives {

// Where the sum of an all-reduce or a reduce-scatter is rounded to its 16-bit type. All ranks get
// the same bits in each case. Sums of other types are added in their own type at every level, in
// the order of the algorithm.
//
// kRoundedOnce     Inputs are added in fp32 in ascending order of ranks and the sum is rounded
//                  once: the same bits on every engine. Exists only where inputs are added in that
//                  order, which is kDirect.
// kFp32Partials    Partial sums travel in fp32, in the algorithm's order, and the sum is rounded
//                  once. Twice the bytes on the wire and in scratch for 16-bit types, except by
//                  kDirect, which has no partial sums.
// kRoundedPerHop   Every addition on the way rounds to the type.
enum class Reduction : uint8_t { kRoundedOnce, kRoundedPerHop, kFp32Partials };

// Which ranks talk to which in an all-reduce, a reduce-scatter or an all-gather. The other
// collectives are direct.
//
// kAuto                For sums that are rounded once kDirect, the only one. For others, and for
//                      all-gathers: kNative on an engine that has it, unless partial sums are to be
//                      fp32; else what Select (tuning/select.h) prefers by the communicator's
//                      topology; without one kDirect, which has the fewest steps and roundings:
//                      nothing is known of the links that would speak for another.
// kDirect              Every rank with every other, in one stage.
// kRing                Every rank with two neighbours, in p - 1 stages, twice for an all-reduce.
// kBidirectionalRing   The same in both directions, in half the stages.
// kHalvingDoubling     With one rank in each of log2 p stages, twice for an all-reduce. Where p is
//                      no power of two the ranks beyond it send their whole array to a partner
//                      first, and get all from it.
// kHierarchical        Directly inside each node, and directly between the ranks that have one
//                      place in their nodes: little crosses the slow links. Needs the
//                      communicator's topology, with nodes of one size. With one node, or one rank
//                      on each, it is kDirect.
// kDoubleTree          All-reduces only. Over two trees, in chunks, in about 2 log2 steps of the
//                      number of nodes, with direct exchanges inside nodes where the topology has
//                      nodes of one size.
// kParameterServer     All-reduces only, to compare with: rank 0 adds up all arrays and sends the
//                      sum to all, 2 (p - 1) arrays by one rank's link. The order of kDirect, and
//                      its reductions.
// kNative              The engine's own collective, with the algorithm that it chooses: NCCL's.
//                      Sums only, and minima and maxima of integers, kRoundedPerHop.
//                      InvalidArgument on an engine that has none.
enum class Algorithm : uint8_t {
  kAuto,
  kDirect,
  kRing,
  kBidirectionalRing,
  kHalvingDoubling,
  kHierarchical,
  kDoubleTree,
  kParameterServer,
  kNative,
};

// The algorithms that every engine carries out, for every collective that has a choice, in any
// group.
inline constexpr Algorithm kAlgorithms[] = {Algorithm::kDirect, Algorithm::kRing,
                                            Algorithm::kBidirectionalRing,
                                            Algorithm::kHalvingDoubling};

// "rounded_once", "ring", "sum", ...
absl::string_view Name(Reduction reduction);
absl::string_view Name(Algorithm algorithm);
absl::string_view Name(kernels::ReduceOp op);

inline bool IsValid(Reduction reduction) { return reduction <= Reduction::kFp32Partials; }
inline bool IsValid(Algorithm algorithm) { return algorithm <= Algorithm::kNative; }

// Whether one rank adds up all inputs of an element, by one addition in fp32 in ascending order of
// ranks: one hop, no partial sums.
inline bool AddsAtOnce(Algorithm algorithm) {
  return algorithm == Algorithm::kDirect || algorithm == Algorithm::kParameterServer;
}
// Whether it has neither reduce-scatters nor all-gathers.
inline bool HasAllReducesAlone(Algorithm algorithm) {
  return algorithm == Algorithm::kDoubleTree || algorithm == Algorithm::kParameterServer;
}

// Whether the algorithm can give sums of that kind. Those that add at once can give all.
bool Exists(Reduction reduction, Algorithm algorithm);

// Of an all-reduce or a reduce-scatter.
struct ReduceOptions {
  kernels::ReduceOp op = kernels::ReduceOp::kSum;
  Reduction reduction = Reduction::kRoundedOnce;
  Algorithm algorithm = Algorithm::kAuto;
};

// Of an all-gather.
struct GatherOptions {
  Algorithm algorithm = Algorithm::kAuto;
};

struct CommunicatorOptions {
  // Who the ranks are and what lies between them, the same on all ranks: for kAuto and
  // kHierarchical. measurement/measure.h measures it, TopologyFromJson reads it.
  std::optional<Topology> topology = std::nullopt;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_OPTIONS_H_
