#ifndef BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_CUDA_H_
#define BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// BlockQuantize and BlockDequantize on `stream`, without checks of the arguments: what those of
// block_quant.h do once they have checked them. One launch for each 1000 non-empty segments.
// `segments` may go when the call returns; the arrays and messages are device memory. T is float,
// Half or BFloat16.
template <typename T>
cudaError_t LaunchBlockQuantize(const QuantizeSegment* segments, int64_t count, QuantFormat format,
                                cudaStream_t stream);
template <typename T>
cudaError_t LaunchBlockDequantize(const DequantizeSegment* segments, int64_t count,
                                  QuantFormat format, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_BLOCK_QUANT_BLOCK_QUANT_CUDA_H_
