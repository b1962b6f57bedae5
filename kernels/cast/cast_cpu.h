#ifndef BRIGADE_KERNELS_CAST_CAST_CPU_H_
#define BRIGADE_KERNELS_CAST_CAST_CPU_H_

#include <cstdint>

#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/nontemporal_store.h"  // NontemporalStoreFence

namespace brigade::kernels {

// Cast on the elements [begin, end) of a segment, in the calling thread and without checks of the
// arguments: what each thread of Cast (cast.h) does. Made for the threads that a program has.
// `scale` may be null.
//
// Ranges  Threads may take any ranges that do not overlap; no cut changes a bit. Those of some
//         thousand elements that begin at multiples of 32 are fastest.
// Stores  With `past_caches`, for targets that will not be read soon (kMinNontemporalBytes of
//         nontemporal_store.h in the whole call), nontemporal ones where nothing is accumulated: a
//         thread calls NontemporalStoreFence after its last range, before it says that it is done.
// Types   Instantiated for BRIGADE_FOR_EACH_CAST_TYPE.
template <typename Source, typename Target>
void CastRange(const CastSegment& segment, const float* scale, bool accumulate, bool past_caches,
               int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_CPU_H_
