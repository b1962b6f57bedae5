#ifndef BRIGADE_BENCHMARKS_KERNELS_CUB_RIVALS_H_
#define BRIGADE_BENCHMARKS_KERNELS_CUB_RIVALS_H_

// What CUB and Thrust make of our simplest kernels, by the algorithm that one would take there.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "brigade/precision/float16.h"

namespace brigade::benchmarks {

cudaError_t ThrustCast(const float* source, precision::BFloat16* target, int64_t size,
                       cudaStream_t stream);
cudaError_t CubCast(const float* source, precision::BFloat16* target, int64_t size,
                    cudaStream_t stream);
cudaError_t ThrustFill(float* target, int64_t size, float value, cudaStream_t stream);
cudaError_t CubFill(float* target, int64_t size, float value, cudaStream_t stream);

// `memory` null: `bytes` becomes what it needs.
cudaError_t CubAmax(const float* array, int64_t size, void* memory, size_t& bytes, float* result,
                    cudaStream_t stream);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_KERNELS_CUB_RIVALS_H_
