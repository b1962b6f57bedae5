#ifndef BRIGADE_KERNELS_FILL_FILL_CUDA_H_
#define BRIGADE_KERNELS_FILL_FILL_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/fill/fill_math.h"

namespace brigade::kernels {

// Fill on `stream`, without checks of the arguments: what Fill (fill.h) does once it has checked
// them. One launch for each 1300 non-empty segments. `segments` may go when the call returns.
cudaError_t LaunchFill(const FillSegment* segments, int64_t count, FillPattern pattern,
                       int64_t element_bytes, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_FILL_FILL_CUDA_H_
