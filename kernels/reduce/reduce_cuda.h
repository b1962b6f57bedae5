#ifndef BRIGADE_KERNELS_REDUCE_REDUCE_CUDA_H_
#define BRIGADE_KERNELS_REDUCE_REDUCE_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// Reduce on `stream`, without checks of the arguments: what Reduce (reduce.h) does once it has
// checked them. All arrays must be memory that the stream's device reaches. Instantiated for
// BRIGADE_FOR_EACH_REDUCE_TYPE.
template <typename T>
cudaError_t LaunchReduce(const ReduceArrays& arrays, ReduceOp op, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_REDUCE_REDUCE_CUDA_H_
