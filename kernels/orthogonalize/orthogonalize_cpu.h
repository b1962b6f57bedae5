#ifndef BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CPU_H_
#define BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CPU_H_

#include <cstdint>

#include "brigade/kernels/orthogonalize/orthogonalize_math.h"

namespace brigade::kernels {

// What each thread of the calls in orthogonalize.h does, in the calling thread and without checks
// of the arguments. Made for the threads that a program has.

// One matrix, whole.
void OrthogonalizeMatrix(const OrthogonalizeSegment& segment, double epsilon);

// The rows [begin, end) of P. Threads may take any ranges; those of 4 rows and more are fastest. With
// `past_caches` P of a small matrix whose rows are all taken is stored past them:
// NontemporalStoreFence comes before saying that it is done.
void LowRankRowsRange(const LowRankSegment& segment, bool past_caches, int64_t begin, int64_t end);

// The sums of the tiles in the rows [begin, end), to the workspace; or Q itself, where
// LowRankWorkspaceSize is 0. `begin` is a multiple of kRowTile, `end` is one or the matrix's rows.
void LowRankTilesRange(const LowRankSegment& segment, int64_t begin, int64_t end);
// Q from the sums of all tiles; nothing where LowRankTilesRange has written it.
void LowRankColumnsFinish(const LowRankSegment& segment);

// The rows [begin, end) of product and M. Threads may take any ranges. With `past_caches` the
// product is stored past them: NontemporalStoreFence comes before saying that it is done.
void LowRankRestoreRange(const LowRankSegment& segment, bool past_caches, int64_t begin,
                         int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CPU_H_
