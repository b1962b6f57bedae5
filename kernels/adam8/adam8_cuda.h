#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_CUDA_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/adam8/adam8_math.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Adam with moments of 8 bits on `stream`, without checks of the arguments: what Adam8 (adam8.h)
// does once it has checked them. One launch for each 360 non-empty segments. `segments` and
// `parameters` may go when the call returns; everything they point to is device memory.
// adam8_parameters.h fills `parameters`.
//
// Errors  Those of LaunchAdam (adam_cuda.h).
template <typename Grad, typename Copy>
cudaError_t LaunchAdam8(const Adam8Segment* segments, int64_t count,
                        const AdamParameters& parameters, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM8_ADAM8_CUDA_H_
