#ifndef BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_CPU_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_CPU_H_

#include <cstdint>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/nontemporal_store.h"  // NontemporalStoreFence

namespace brigade::kernels {

// BlockQuantize and BlockDequantize on the elements [begin, end) of a segment, in the calling
// thread and without checks of the arguments: what each thread of block_quant.h does. Made for the
// threads that a program has.
//
// Ranges  Begin at multiples of 256 and end at such or at the segment's end; threads may take any
//         that do not overlap. No cut changes a bit. Those of some thousand elements that begin at
//         multiples of 4096 are fastest.
// Stores  With `past_caches`, for results that will not be read soon (kMinNontemporalBytes of
//         nontemporal_store.h in the whole call), nontemporal ones: a thread calls
//         NontemporalStoreFence after its last range, before it says that it is done.
// Types   Instantiated for float, Half and BFloat16.
template <typename T>
void BlockQuantizeRange(const QuantizeSegment& segment, QuantFormat format, bool past_caches,
                        int64_t begin, int64_t end);
template <typename T>
void BlockDequantizeRange(const DequantizeSegment& segment, QuantFormat format, bool past_caches,
                          int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_CPU_H_
