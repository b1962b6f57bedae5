// The functions of cublas_v2.h that the project calls, on the streams of the emulator's runtime:
// libcublas.so.13. Checks and status codes are those of the cuBLAS manual.

#include <cblas.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/emulator/cublas/gemm.h"
#include "brigade/emulator/runtime/library.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
};

namespace {

namespace device = brigade::device;
using brigade::emulator::EnqueueKernel;
using brigade::emulator::GemmCall;
using brigade::emulator::GemmMatrix;
using brigade::emulator::GemmType;
using brigade::emulator::WritableBytes;

constexpr uintptr_t kWorkspaceAlignment = 256;

// Those that live, so that one that was destroyed is told from others.
device::Mutex mutex;
std::set<cublasHandle_t>& Handles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* const handles = new std::set<cublasHandle_t>;
  return *handles;
}

bool IsLive(cublasHandle_t handle) {
  const device::MutexLock lock(mutex);
  return Handles().count(handle) != 0;
}

std::optional<GemmType> TypeOf(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
      return GemmType::kFloat32;
    case CUDA_R_16F:
      return GemmType::kFloat16;
    case CUDA_R_16BF:
      return GemmType::kBFloat16;
    default:
      return std::nullopt;
  }
}

bool IsOperation(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

// What a kernel of cuBLAS may write.
absl::Status CheckWorkspace(void* workspace, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(WritableBytes(workspace, 1).status());
  return WritableBytes(static_cast<char*>(workspace) + bytes - 1, 1).status();
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  // A product runs on its stream's thread.
  openblas_set_num_threads(1);
  *handle = new cublasContext;
  const device::MutexLock lock(mutex);
  Handles().insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  const device::MutexLock lock(mutex);
  if (Handles().erase(handle) == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

// Brings the library's own workspace back.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (!IsLive(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  handle->workspace = nullptr;
  handle->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (!IsLive(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  handle->workspace = workspace;
  handle->workspace_bytes = workspace == nullptr ? 0 : bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (!IsLive(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  constexpr int kFlag = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  const int base = static_cast<int>(mode) & ~kFlag;
  // TF32 and the emulations of fp32 are not here.
  if (base > CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH) return CUBLAS_STATUS_INVALID_VALUE;
  if (base > CUBLAS_PEDANTIC_MATH) return CUBLAS_STATUS_NOT_SUPPORTED;
  handle->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  if (!IsLive(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (mode == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *mode = handle->math_mode;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "unknown status";
  }
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int a_leading, long long a_stride, const void* b,
                                          cudaDataType b_type, int b_leading, long long b_stride,
                                          const void* beta, void* c, cudaDataType c_type,
                                          int c_leading, long long c_stride, int batch,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (!IsLive(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || k < 0 || batch < 0 || !IsOperation(transa) || !IsOperation(transb) ||
      a_leading < std::max(1, transa == CUBLAS_OP_N ? m : k) ||
      b_leading < std::max(1, transb == CUBLAS_OP_N ? k : n) || c_leading < std::max(1, m) ||
      alpha == nullptr || beta == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto in = TypeOf(a_type), out = TypeOf(c_type);
  if (!in || !out || a_type != b_type || (*out != *in && *out != GemmType::kFloat32) ||
      compute != CUBLAS_COMPUTE_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (m == 0 || n == 0 || batch == 0) return CUBLAS_STATUS_SUCCESS;

  constexpr int kFlag = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  GemmCall call = {.m = m, .n = n, .k = k, .batch = batch};
  call.a = {const_cast<void*>(a), *in, a_leading, a_stride, transa != CUBLAS_OP_N};
  call.b = {const_cast<void*>(b), *in, b_leading, b_stride, transb != CUBLAS_OP_N};
  call.c = {c, *out, c_leading, c_stride};
  call.alpha = *static_cast<const float*>(alpha);
  call.beta = *static_cast<const float*>(beta);
  call.reduces_in_16_bits = *in != GemmType::kFloat32 &&
                            (static_cast<int>(handle->math_mode) & kFlag) == 0 &&
                            handle->math_mode != CUBLAS_PEDANTIC_MATH;
  const cudaError_t enqueued =
      EnqueueKernel(handle->stream, "cublasGemmStridedBatchedEx",
                    [call, workspace = handle->workspace, bytes = handle->workspace_bytes] {
                      BRIGADE_RETURN_IF_ERROR(CheckWorkspace(workspace, bytes));
                      return RunGemm(call);
                    });
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
