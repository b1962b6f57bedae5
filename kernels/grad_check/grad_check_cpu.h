#ifndef BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CPU_H_
#define BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CPU_H_

#include <cstdint>

#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

// The sums of the tiles in the elements [begin, end) of a segment, in the calling thread: what each
// thread of GradCheck (grad_check.h) does. Made for the threads that a program has.
//
// Ranges     Tiles of kGradTile elements, whole: `begin` is a multiple of kGradTile, and `end` is
//            one or the segment's size. Threads may take any such ranges.
// tile_sums  Those of the whole segment, one for each tile, also of an incomplete last one: tile t
//            has elements t * kGradTile and on.
// Types      Instantiated for float, Half and BFloat16.
template <typename Grad>
void GradTileSumsRange(const GradSegment& segment, int64_t begin, int64_t end, double* tile_sums);

// The list's statistics from the sums of all its tiles, those of each segment after those of the
// one before.
GradStats GradCheckFinishCpu(const double* tile_sums, int64_t tiles);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CPU_H_
