#ifndef BRIGADE_KERNELS_CAST_CAST_CUDA_H_
#define BRIGADE_KERNELS_CAST_CAST_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/cast/cast_math.h"

namespace brigade::kernels {

// Cast on `stream`, without checks of the arguments: what Cast (cast.h) does once it has checked
// them. One launch for each 1000 non-empty segments. `segments` may go when the call returns;
// `scale` (or null) and the arrays are device memory.
template <typename Source, typename Target>
cudaError_t LaunchCast(const CastSegment* segments, int64_t count, const float* scale,
                       bool accumulate, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_CAST_CAST_CUDA_H_
