#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_CPU_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_CPU_H_

#include <cstdint>

#include "brigade/kernels/adam8/adam8_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Adam with moments of 8 bits on the elements [begin, end) of a segment, in the calling thread and
// without checks of the arguments: what each thread of Adam8 (adam8.h) does. Made for the threads
// that a program has. The parameters are those of adam8_parameters.h.
//
// Ranges  Threads may take any ranges that do not overlap and are of whole blocks: `begin` is a
//         multiple of 256, and `end` too unless it is the segment's size. No cut changes a bit.
// Stores  Ordinary ones: nothing is to be fenced.
// Errors  Touches no memory of the segment if the step's values are missing: the parameters name
//         none, or what they point to was not filled.
// Types   Instantiated for BRIGADE_FOR_EACH_UPDATE_TYPE; Copy is NoCopy without one.
template <typename Grad, typename Copy>
[[nodiscard]] StepError Adam8Range(const Adam8Segment& segment, const AdamParameters& parameters,
                                   int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM8_ADAM8_CPU_H_
