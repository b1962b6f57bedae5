#ifndef BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_CUDA_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/collectives/compressed/amax_scale_math.h"

namespace brigade::collectives {

// ChooseAmaxScale on `stream`, without checks of the arguments: what it does (amax_scale.h) once it
// has checked them. `limit` is that of the wire's type. The pointers are device memory.
cudaError_t LaunchAmaxScale(const float* amax, int64_t terms, int32_t limit, AmaxScale* result,
                            cudaStream_t stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_CUDA_H_
