#ifndef BRIGADE_KERNELS_FILL_FILL_CPU_H_
#define BRIGADE_KERNELS_FILL_FILL_CPU_H_

#include <cstdint>

#include "brigade/kernels/fill/fill_math.h"
#include "brigade/kernels/nontemporal_store.h"  // NontemporalStoreFence

namespace brigade::kernels {

// Fill on the elements [begin, end) of a segment, in the calling thread and without checks of the
// arguments: what each thread of Fill (fill.h) does. Made for the threads that a program has.
// MakeFillPattern gives the pattern.
//
// Ranges  Threads may take any ranges that do not overlap; no cut changes a bit.
// Stores  With `past_caches`, for arrays that will not be read soon (kMinNontemporalBytes of
//         nontemporal_store.h in the whole call), nontemporal ones: a thread calls
//         NontemporalStoreFence after its last range, before it says that it is done.
void FillRange(const FillSegment& segment, const FillPattern& pattern, int64_t element_bytes,
               bool past_caches, int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_FILL_FILL_CPU_H_
