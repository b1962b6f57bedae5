#ifndef BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_CUDA_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/collectives/compressed/amax_scale_types.h"

namespace brigade::kernels {

// ChooseWireScale on `stream`, without checks of the arguments: what it does (wire_scale.h) once it has checked them.
// `limit` is that of the wire's type. The pointers are device memory.
cudaError_t LaunchWireScale(const float* abs_max, int64_t terms, int32_t limit, WireScale* result,
                            cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_CUDA_H_
