#ifndef BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CUDA_H_
#define BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/orthogonalize/orthogonalize_math.h"

namespace brigade::kernels {

// The calls of orthogonalize.h on `stream`, without checks of the arguments. One launch for each
// 1000 matrices, or 450 with factors, and for LowRankColumns one more for the sums of tiles. Lists
// may go when a call returns; everything they point to is device memory.
cudaError_t LaunchOrthogonalize(const OrthogonalizeSegment* segments, int64_t count, double epsilon,
                                cudaStream_t stream);
cudaError_t LaunchLowRankRows(const LowRankSegment* segments, int64_t count, cudaStream_t stream);
cudaError_t LaunchLowRankColumns(const LowRankSegment* segments, int64_t count,
                                 cudaStream_t stream);
cudaError_t LaunchLowRankRestore(const LowRankSegment* segments, int64_t count,
                                 cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_CUDA_H_
