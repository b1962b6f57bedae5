#ifndef BRIGADE_KERNELS_AMAX_AMAX_CUDA_H_
#define BRIGADE_KERNELS_AMAX_AMAX_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/amax/amax_math.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// Amax on `stream`, without checks of the arguments: what Amax (amax.h) does once it has checked
// them. Two launches. All pointers are device memory; `scale` may be null. T is float, Half or
// BFloat16.
template <typename T>
cudaError_t LaunchAmax(const T* array, int64_t size, const float* scale, AmaxWorkspace* workspace,
                       AmaxResult* result, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_AMAX_AMAX_CUDA_H_
