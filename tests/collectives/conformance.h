#ifndef BRIGADE_TESTS_COLLECTIVES_CONFORMANCE_H_
#define BRIGADE_TESTS_COLLECTIVES_CONFORMANCE_H_

#include <cstdint>
#include <vector>

#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/tests/collectives/ranks.h"

namespace brigade::collectives {

// What every engine must do, for one group: each operation with every type, reduction, algorithm,
// in place and not, for the given counts, on one communicator per rank, in memory of the options'
// device. Inputs are small integers, whose sums every type holds exactly, so results are compared
// bit by bit. Fails the test that calls it.
void Conform(const RanksOptions& options, const CreateEngineFn& create_engine,
             const std::vector<int64_t>& counts);

// The same for the operations that the algorithms which know of nodes have, on
// options.ranks_of_node.
void ConformOnNodes(const RanksOptions& options, const CreateEngineFn& create_engine,
                    const std::vector<int64_t>& counts);

// What ranks count as sent, for every algorithm, reduction and operation, is what
// algorithms/wire_elements.h says; and what they allocate is what algorithms/workspace.h says,
// before the first call and without one more allocation in it.
void ConformTrafficAndMemory(const RanksOptions& options, const CreateEngineFn& create_engine,
                             EngineKind kind);

// Splits of 5 ranks: by color in the order of keys, of what a split has made, and of ranks that get
// nothing.
void ConformSplit(const CreateEngineFn& create_engine);

// Calls in registered memory, in memory that is registered anew, and in memory whose registration
// has ended; what Register refuses.
void ConformRegistration(const RanksOptions& options, const CreateEngineFn& create_engine);

// The sizes of groups for the suites: powers of two and others, even and odd. Few of them under
// a sanitizer.
std::vector<int> WorldSizes();

// Counts at which blocks change their ways, for a group of `size`.
std::vector<int64_t> InterestingCounts(int size);

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_CONFORMANCE_H_
