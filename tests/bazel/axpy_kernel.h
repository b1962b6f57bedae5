#pragma once

#include <cstdint>

namespace brigade::tests {

__global__ void AxpyKernel(float a, const float* x, float* y, int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size) y[i] += a * x[i];
}

}  // namespace brigade::tests
