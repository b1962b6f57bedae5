#ifndef BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CPU_H_
#define BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CPU_H_

#include "absl/types/span.h"
#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

// The sum of each tile, in the calling thread and the pool's. `plan` has tiles of kGradTile
// elements, tile_sums one double for each.
template <typename Grad>
void GradTileSumsCpu(absl::Span<const PlannedSegment<GradSegment>> plan, double* tile_sums,
                     device::ThreadPool& pool);

// The list's statistics from the sums of all its tiles.
GradStats GradCheckFinishCpu(const double* tile_sums, int64_t tiles);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CPU_H_
