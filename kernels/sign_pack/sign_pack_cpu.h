#ifndef BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_CPU_H_
#define BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_CPU_H_

#include <cstdint>

#include "brigade/kernels/grad_check/grad_check_cpu.h"  // GradCheckFinishCpu
#include "brigade/kernels/nontemporal_store.h"          // NontemporalStoreFence
#include "brigade/kernels/sign_pack/sign_pack_math.h"

namespace brigade::kernels {

// The parts of SignPack and SignUnpack on the elements [begin, end) of a segment, in the calling
// thread and without checks of the arguments: what each thread of sign_pack.h does. Made for the
// threads that a program has.
//
// Order   SignTileSumsRange of the whole list, with the tiles of all segments in order; the sums to
//         GradCheckFinishCpu and its result to SignScale; then SignPackRange of
//         the whole list.
// Ranges  Those of SignTileSumsRange begin at multiples of 8192 and end at such or at the segment's
//         end, those of the others at multiples of 512; threads may take any that do not overlap.
//         No cut changes a bit.
// Types   Instantiated for float, Half and BFloat16.

// tile_sums[t]: the sum of squares of tile t of the segment.
template <typename T>
void SignTileSumsRange(const SignPackSegment& segment, int64_t begin, int64_t end,
                       double* tile_sums);

template <typename T>
void SignPackRange(const SignPackSegment& segment, float scale, int64_t begin, int64_t end);

// With `past_caches`, for arrays that will not be read soon (kMinNontemporalBytes of
// nontemporal_store.h in the whole call), nontemporal stores: a thread calls NontemporalStoreFence
// after its last range, before it says that it is done.
template <typename T>
void SignUnpackRange(const SignUnpackSegment& segment, const SignUnpackParameters& parameters,
                     bool past_caches, int64_t begin, int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_CPU_H_
