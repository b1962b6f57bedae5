#ifndef BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CUDA_H_
#define BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// GradCheck on `stream`, without checks of the arguments: what GradCheck (grad_check.h) does once
// it has checked them. One launch for each 1300 non-empty segments and one to finish, two for more
// than 4096 tiles. `segments` may go when the call returns; `workspace` (a double per tile of 8192
// elements of each segment), `stats` and the gradients are device memory.
template <typename Grad>
cudaError_t LaunchGradCheck(const GradSegment* segments, int64_t count, double* workspace,
                            GradStats* stats, cudaStream_t stream);

// Its two halves, likewise: GradTileSums and GradCheckFinish of grad_check.h.
template <typename Grad>
cudaError_t LaunchGradTileSums(const GradSegment* segments, int64_t count, double* tile_sums,
                               cudaStream_t stream);
cudaError_t LaunchGradCheckFinish(double* tile_sums, int64_t tiles, GradStats* stats,
                                  cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_GRAD_CHECK_GRAD_CHECK_CUDA_H_
