#ifndef BRIGADE_KERNELS_LION_LION_CPU_H_
#define BRIGADE_KERNELS_LION_LION_CPU_H_

#include <cstdint>

#include "brigade/kernels/lion/lion_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Lion on the elements [begin, end) of a segment, in the calling thread and without checks of the
// arguments: what each thread of Lion (lion.h) does. Made for the threads that a program has.
//
// Ranges  Threads may take any ranges that do not overlap; no cut changes a bit. Those of some
//         thousand elements that begin at multiples of 16 are fastest.
// Stores  Ordinary ones: nothing is to be fenced.
// Errors  Touches no memory of the segment if the step's values are missing: the parameters
//         (lion_parameters.h) name none, or what they point to was not filled.
// Types   Instantiated for BRIGADE_FOR_EACH_UPDATE_TYPE; Copy is NoCopy without one.
template <typename Grad, typename Copy>
[[nodiscard]] StepError LionRange(const LionSegment& segment, const LionParameters& parameters,
                                  int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LION_LION_CPU_H_
