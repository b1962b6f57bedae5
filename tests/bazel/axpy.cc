#include "brigade/tests/bazel/axpy.h"

#include "brigade/tests/bazel/axpy_checks.h"

#if BRIGADE_CUDA
#include "brigade/tests/bazel/axpy_cuda.h"
#endif

namespace brigade::tests {

absl::Status Axpy(float a, absl::Span<const float> x, absl::Span<float> y) {
  if (absl::Status status = CheckSameSize(x.size(), y.size()); !status.ok()) return status;
  for (size_t i = 0; i < x.size(); ++i) y[i] += a * x[i];
  return absl::OkStatus();
}

absl::Status CudaState() {
#if BRIGADE_CUDA
  const cudaError_t error = LaunchAxpy(1.0f, nullptr, nullptr, 1, nullptr);
  return absl::UnavailableError(cudaGetErrorName(error));
#else
  return absl::UnimplementedError("no toolkit");
#endif
}

}  // namespace brigade::tests
