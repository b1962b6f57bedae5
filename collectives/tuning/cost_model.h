#ifndef BRIGADE_COLLECTIVES_TUNING_COST_MODEL_H_
#define BRIGADE_COLLECTIVES_TUNING_COST_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/collectives/tuning/topology.h"

namespace brigade::collectives {

// The algorithms that the model knows: those with a program.
inline constexpr Algorithm kModelledAlgorithms[] = {
    Algorithm::kDirect,          Algorithm::kRing,         Algorithm::kBidirectionalRing,
    Algorithm::kHalvingDoubling, Algorithm::kHierarchical, Algorithm::kDoubleTree,
    Algorithm::kParameterServer};

// What a level has to do in a phase: on the longest path, and at the port that sends most.
struct Load {
  // How many messages follow each other.
  int64_t steps = 0;
  // Bytes sent through the port.
  double bytes = 0;
};

// A part of a collective that begins when the one before has ended. Inside it both levels work at
// the same time.
struct Phase {
  Load inside;
  Load between;
  // Bytes added up by a rank.
  double reduced_bytes = 0;
  // Messages of a rank that wait for another of the same step.
  int64_t queued = 0;
  // Topology::call_s if the phase begins a call, else 0.
  double call_s = 0;
};

// The phases of all_reduce, reduce_scatter or all_gather of `bytes`, of the whole array in each
// case. Blocks are taken as equal: real ones differ by 16 elements. Of several ports of a rank
// inside its node only kDirect, the rings both ways and what is direct inside nodes use more than
// one.
//
// kRing                Node by node: one port of a node leads to the next, of two where there are
//                      both ways.
// kHalvingDoubling     Near first, so that what leaves the node is small. Powers of two only.
// kHierarchical        Nodes of one size.
// kDoubleTree          As on nodes of one size, or on ranks where nodes differ. Chunks follow each
//                      other so closely that steps and bytes count once.
// kParameterServer     The server's port takes all arrays in, then sends as many: loads are its
//                      own.
//
// Errors       InvalidArgument for a topology that Validate refuses, negative bytes, another
//              operation. FailedPrecondition with the reason if the algorithm does not exist here.
// Source       Thakur, Rabenseifner and Gropp, 2005 (direct, rings, halving-doubling); Sanders,
//              Speck and Traeff, 2009 (double tree); Patarasuk and Yuan, 2009 (bytes of rings).
absl::StatusOr<std::vector<Phase>> PhasesOf(const Topology& topology, Algorithm algorithm,
                                            CollectiveKind operation, int64_t bytes);

// Sum over phases of: the call, plus steps times latency of both levels, plus the longer of both
// levels' bytes over bandwidth, plus queued messages, plus the time to reduce.
double SecondsOf(const Topology& topology, const std::vector<Phase>& phases);

// Bytes per second that a rank's link would have to have in an ideal ring: comparable over numbers
// of ranks.
double BusBandwidth(CollectiveKind operation, int ranks, int64_t bytes, double seconds);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_TUNING_COST_MODEL_H_
