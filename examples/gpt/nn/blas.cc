#include "brigade/examples/gpt/nn/blas.h"

#include <algorithm>

#include "brigade/examples/gpt/nn/blas_cpu.h"

#if BRIGADE_CUDA
#include "brigade/examples/gpt/nn/blas_cuda.h"
#endif

namespace brigade::nn {

absl::StatusOr<std::unique_ptr<Blas>> Blas::Create(device::Context& context,
                                                   int64_t workspace_bytes) {
#if BRIGADE_CUDA
  if (context.device().kind == device::DeviceKind::kCuda) {
    return NewCudaBlas(context, workspace_bytes);
  }
#endif
  return NewCpuBlas(context, workspace_bytes);
}

int64_t Blas::ScratchBytes(device::Device device, int64_t workspace_bytes) {
  // For Hopper. Source: cuBLAS manual, cublasSetWorkspace.
  constexpr int64_t kCublasWorkspaceBytes = int64_t{32} << 20;
  return device.kind == device::DeviceKind::kCuda ? std::max(workspace_bytes, kCublasWorkspaceBytes)
                                                  : workspace_bytes;
}

int64_t Blas::WorkspaceBytes(precision::DType dtype, int64_t m, int64_t n, int64_t k) {
  if (precision::SizeOf(dtype) != 2) return 0;
  return (m * k + k * n + m * n) * static_cast<int64_t>(sizeof(float));
}

}  // namespace brigade::nn
