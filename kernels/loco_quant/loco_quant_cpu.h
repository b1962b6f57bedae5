#ifndef BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_CPU_H_
#define BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_CPU_H_

#include <cstdint>

#include "brigade/kernels/loco_quant/loco_quant_math.h"

namespace brigade::kernels {

// LocoQuantize on the elements [begin, end) of a segment, in the calling thread and without checks
// of the arguments: what each thread of LocoQuantize (loco_quant.h) does. Made for the threads that
// a program has.
//
// Ranges  Begin at multiples of 256 and end at such or at the segment's end; threads may take any
//         that do not overlap. No cut changes a bit. Those of some thousand elements that begin at
//         multiples of 4096 are fastest.
// Types   Instantiated for float, Half and BFloat16.
template <typename T>
void LocoQuantizeRange(const LocoSegment& segment, QuantFormat format,
                       const LocoParameters& parameters, int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_CPU_H_
