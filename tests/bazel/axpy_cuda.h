#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace brigade::tests {

// y[i] += a * x[i] on the GPU; x and y are device pointers. Null is cudaErrorInvalidValue.
cudaError_t LaunchAxpy(float a, const float* x, float* y, int64_t size, cudaStream_t stream);

}  // namespace brigade::tests
