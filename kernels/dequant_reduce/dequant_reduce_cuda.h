#ifndef BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_CUDA_H_
#define BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/dequant_reduce/dequant_reduce_math.h"

namespace brigade::kernels {

// DequantReduce on `stream`, without checks of the arguments: what DequantReduce (dequant_reduce.h)
// does once it has checked them. One launch for each 1000 non-empty segments. `segments` may go
// when the call returns; messages and targets are device memory. Instantiated for
// BRIGADE_FOR_EACH_DEQUANT_TARGET.
template <typename Target>
cudaError_t LaunchDequantReduce(const DequantReduceSegment* segments, int64_t count,
                                QuantFormat format, const DequantReduceParameters& parameters,
                                cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_DEQUANT_REDUCE_DEQUANT_REDUCE_CUDA_H_
