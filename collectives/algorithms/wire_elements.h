#ifndef BRIGADE_COLLECTIVES_ALGORITHMS_WIRE_ELEMENTS_H_
#define BRIGADE_COLLECTIVES_ALGORITHMS_WIRE_ELEMENTS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "brigade/collectives/collective.h"

namespace brigade::collectives {

// What collectives with a resolved algorithm send: what engines count, and what zero/ and
// the cost model expect. Of kNative, which has no program, what a ring sends.

// Calls add(to, elements) with what CountWireElements (program.h) counts for `rank`, of kDirect and
// kRing by formulas: in the time of a call there is none to walk through all ranks' instructions.
// Not for sends.
void ForEachSent(const CollectiveSignature& signature, int rank, int size,
                 absl::FunctionRef<void(int to, int64_t elements)> add);

// What `rank` sends in all, in elements of the type of partial sums (PartialType), and in bytes.
// Not for sends.
int64_t WireElements(const CollectiveSignature& signature, int rank, int size);
int64_t WireBytes(const CollectiveSignature& signature, int rank, int size);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ALGORITHMS_WIRE_ELEMENTS_H_
