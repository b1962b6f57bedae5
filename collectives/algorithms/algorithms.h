#ifndef BRIGADE_COLLECTIVES_ALGORITHMS_ALGORITHMS_H_
#define BRIGADE_COLLECTIVES_ALGORITHMS_ALGORITHMS_H_

// The algorithms that program.h speaks of; all but direct know all_reduce, reduce_scatter and
// all_gather only.

#include <cstdint>

#include "brigade/collectives/algorithms/builder.h"
#include "brigade/collectives/collective.h"

namespace brigade::collectives {

// Each gives, for a group of more than one rank: how many stages a collective has; how many
// elements a rank lends as scratch; and its instructions.
struct AlgorithmFunctions {
  int (*stages)(const CollectiveSignature& signature, int size);
  int64_t (*scratch_elements)(const CollectiveSignature& signature, int size);
  void (*build)(const CollectiveSignature& signature, ProgramBuilder& builder);
};

extern const AlgorithmFunctions kDirectFunctions;
extern const AlgorithmFunctions kRingFunctions;
extern const AlgorithmFunctions kBidirectionalRingFunctions;
extern const AlgorithmFunctions kHalvingDoublingFunctions;
extern const AlgorithmFunctions kHierarchicalFunctions;
// All-reduces only.
extern const AlgorithmFunctions kDoubleTreeFunctions;
extern const AlgorithmFunctions kParameterServerFunctions;

// The same of a sum with fp32 partial sums, which is made of the program of `algorithm`;
// fp32_partials.cc.
int Fp32PartialsStages(const AlgorithmFunctions& algorithm, const CollectiveSignature& signature,
                       int size);
int64_t Fp32PartialsScratch(const AlgorithmFunctions& algorithm,
                            const CollectiveSignature& signature, int size);
void BuildFp32Partials(const AlgorithmFunctions& algorithm, const CollectiveSignature& signature,
                       ProgramBuilder& builder);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ALGORITHMS_ALGORITHMS_H_
