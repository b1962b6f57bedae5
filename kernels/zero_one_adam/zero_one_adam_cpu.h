#ifndef BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_CPU_H_
#define BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_CPU_H_

#include <cstdint>

#include "brigade/kernels/zero_one_adam/zero_one_adam_math.h"

namespace brigade::kernels {

// An operation of zero_one_adam_math.h on the elements [begin, end) of a segment, in the calling
// thread and without checks of the arguments. Made for the threads that a program has, which may
// take any ranges. ZeroOneAdamRates is CountRates, of the same header, and
// zero_one_adam_parameters.h fills what it takes. Instantiated for
// ZeroOneMaskOperation, ZeroOneReceiveOperation and ZeroOneTakeOperation.
template <typename Operation>
void ZeroOneElementsRange(const Operation& operation, const typename Operation::Segment& segment,
                          int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_CPU_H_
