#ifndef BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_CUDA_H_
#define BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/loco_quant/loco_quant_math.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// LocoQuantize on `stream`, without checks of the arguments: what LocoQuantize (loco_quant.h) does
// once it has checked them. One launch for each 800 non-empty segments. `segments` may go when the
// call returns; arrays, errors and messages are device memory. T is float, Half or BFloat16.
template <typename T>
cudaError_t LaunchLocoQuantize(const LocoSegment* segments, int64_t count, QuantFormat format,
                               const LocoParameters& parameters, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LOCO_QUANT_LOCO_QUANT_CUDA_H_
