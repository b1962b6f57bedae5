#ifndef BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CPU_H_
#define BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CPU_H_

#include <cstdint>

#include "brigade/kernels/nontemporal_store.h"  // NontemporalStoreFence
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"

namespace brigade::kernels {

// What each thread of the calls in orthogonalize.h does, in the calling thread and without checks
// of the arguments. Made for the threads that a program has.

// One matrix, whole.
void OrthogonalizeMatrix(const OrthogonalizeSegment& segment, double epsilon);

// With `past_caches` results are stored past the caches: all of a product, and a factor if it is
// small and one call writes it whole. NontemporalStoreFence comes before saying that they are done.

// The rows [begin, end) of P. Threads may take any ranges; those of 4 rows and more are fastest.
void LowRankRowsRange(const LowRankSegment& segment, bool past_caches, int64_t begin, int64_t end);

// The sums of the tiles in the rows [begin, end), to the workspace; or Q itself, where
// LowRankWorkspaceSize is 0. `begin` is a multiple of kRowTile, `end` is one or the matrix's rows.
void LowRankTilesRange(const LowRankSegment& segment, bool past_caches, int64_t begin, int64_t end);
// Q from the sums of all tiles; nothing where LowRankTilesRange has written it.
void LowRankColumnsFinish(const LowRankSegment& segment);

// The rows [begin, end) of product and M. Threads may take any ranges.
void LowRankRestoreRange(const LowRankSegment& segment, bool past_caches, int64_t begin,
                         int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CPU_H_
