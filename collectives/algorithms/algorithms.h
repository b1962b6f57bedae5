#ifndef BRIGADE_COLLECTIVES_ALGORITHMS_ALGORITHMS_H_
#define BRIGADE_COLLECTIVES_ALGORITHMS_ALGORITHMS_H_

// The algorithms that program.h speaks of; all but direct know all_reduce, reduce_scatter and all_gather only.

#include <cstdint>

#include "brigade/collectives/algorithms/builder.h"
#include "brigade/collectives/collective.h"

namespace brigade::collectives {

// Each gives, for a group of more than one rank: how many stages a call has; how many of its parts of `count`
// elements a rank lends as scratch; and its instructions.
struct AlgorithmFunctions {
  int (*stages)(CollectiveKind kind, int size);
  int64_t (*scratch_parts)(CollectiveKind kind, int size);
  void (*build)(const CollectiveSignature& signature, ProgramBuilder& builder);
};

extern const AlgorithmFunctions kDirectFunctions;
extern const AlgorithmFunctions kRingFunctions;
extern const AlgorithmFunctions kBidirectionalRingFunctions;
extern const AlgorithmFunctions kHalvingDoublingFunctions;

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ALGORITHMS_ALGORITHMS_H_
