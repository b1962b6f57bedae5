#ifndef BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_CPU_H_
#define BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_CPU_H_

#include <cstdint>

#include "brigade/kernels/dequant_reduce/dequant_reduce_math.h"
#include "brigade/kernels/nontemporal_store.h"  // NontemporalStoreFence

namespace brigade::kernels {

// DequantReduce on the elements [begin, end) of a segment, in the calling thread and without checks
// of the arguments: what each thread of DequantReduce (dequant_reduce.h) does. Made for the threads
// that a program has. `format` is that of the messages that are added.
//
// Ranges  Begin at multiples of 256 and end at such or at the segment's end; threads may take any
//         that do not overlap. No cut changes a bit. Those of some thousand elements that begin at
//         multiples of 4096 are fastest.
// Stores  With `past_caches`, for targets that will not be read soon (kMinNontemporalBytes of
//         nontemporal_store.h in the whole call), nontemporal ones: a thread calls
//         NontemporalStoreFence after its last range, before it says that it is done.
// Types   Instantiated for BRIGADE_FOR_EACH_DEQUANT_TARGET.
template <typename Target>
void DequantReduceRange(const DequantReduceSegment& segment, QuantFormat format,
                        const DequantReduceParameters& parameters, bool past_caches, int64_t begin,
                        int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_CPU_H_
