#ifndef BRIGADE_KERNELS_ADAM_ADAM_CUDA_H_
#define BRIGADE_KERNELS_ADAM_ADAM_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/adam/adam_math.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Adam on `stream`, without checks of the arguments: what Adam (adam.h) does once it has checked
// them. One launch for each 460 non-empty segments. `segments` and `parameters` may go when the
// call returns; everything they point to is device memory.
template <typename Grad, typename Copy>
cudaError_t LaunchAdam(const AdamSegment* segments, int64_t count, const AdamParameters& parameters,
                       cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAM_ADAM_CUDA_H_
