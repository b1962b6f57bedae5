#ifndef BRIGADE_KERNELS_LAMB_LAMB_CPU_H_
#define BRIGADE_KERNELS_LAMB_LAMB_CPU_H_

#include <cstdint>

#include "brigade/kernels/lamb/lamb_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Lamb (lamb.h) on one tensor, in the calling thread and without checks of the arguments. Made for
// the threads that a program has. In this order, each for all of the tensor before the next:
//
//   LambMomentsRange of all ranges;  trust = LambTrustOf(tiles);  LambParamRange of all ranges
//
// Ranges  Of whole tiles: `begin` is a multiple of kLambTile, and `end` is one or the tensor's
//         size. Threads may take any such ranges.
// Errors  Touch no memory of the segment if the step's values are missing: the parameters
//         (lamb_parameters.h) name none, or what they point to was not filled.
// Types   Instantiated for float, Half and BFloat16; Copy is NoCopy without one.

// New moments, and the sums of squares of the tiles of the range: tiles[t] of the tensor's tile t.
template <typename Grad>
[[nodiscard]] StepError LambMomentsRange(const LambSegment& segment,
                                         const LambParameters& parameters, int64_t begin,
                                         int64_t end, LambSums* tiles);

// The trust ratio from the sums of all tiles of the tensor; and the same where ranks have summed
// their tiles.
float LambTrustOf(const LambSegment& segment, const LambParameters& parameters,
                  const LambSums* tiles);
float LambTrustOf(const LambTensor& tensor, const LambParameters& parameters,
                  const LambSums* tiles);

// New parameters, from the moments that are new already.
template <typename Copy>
[[nodiscard]] StepError LambParamRange(const LambSegment& segment, const LambParameters& parameters,
                                       float trust, int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LAMB_LAMB_CPU_H_
