#include "brigade/tests/bazel/axpy_cuda.h"
#include "brigade/tests/bazel/axpy_kernel.h"

namespace brigade::tests {

cudaError_t LaunchAxpy(float a, const float* x, float* y, int64_t size, cudaStream_t stream) {
  if (x == nullptr || y == nullptr) return cudaErrorInvalidValue;
  if (size == 0) return cudaSuccess;
  AxpyKernel<<<static_cast<unsigned>((size + 255) / 256), 256, 0, stream>>>(a, x, y, size);
  return cudaGetLastError();
}

}  // namespace brigade::tests
