#ifndef BRIGADE_KERNELS_TOP_K_TOP_K_CUDA_H_
#define BRIGADE_KERNELS_TOP_K_TOP_K_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/top_k/top_k_math.h"

namespace brigade::kernels {

// TopK on `stream`, without checks of the arguments: what TopK (top_k.h) does once it has checked
// them. Ten launches for each 580 arrays with a k above 0. `segments` may go when the call returns;
// everything they point to is device memory.
template <typename T>
cudaError_t LaunchTopK(const TopKSegment* segments, int64_t count, bool clear, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_TOP_K_TOP_K_CUDA_H_
