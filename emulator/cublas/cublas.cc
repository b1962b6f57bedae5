// The functions of cublas_v2.h that the project calls, on the streams of the emulator's runtime:
// libcublas.so.13. Checks and status codes are those of the cuBLAS manual; what it leaves undefined
// is reported.

#include <cblas.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/emulator/cublas/gemm.h"
#include "brigade/emulator/runtime/library.h"

struct cublasContext {
  // Current when it was made.
  int device = 0;
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
using brigade::emulator::ReachableBytes;
using brigade::emulator::ReportMistake;
using brigade::emulator::WritableBytes;

constexpr uintptr_t kWorkspaceAlignment = 256;

// Those that live, so that one that was destroyed is told from others.
device::Mutex mutex;
std::set<cublasHandle_t>& Handles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* const handles = new std::set<cublasHandle_t>;
  return *handles;
}

// Also those that are gone: a stale handle is never another one's.
std::vector<std::unique_ptr<cublasContext>>& Contexts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* const contexts = new std::vector<std::unique_ptr<cublasContext>>;
  return *contexts;
}

// Of a call with a handle. Null is cuBLAS's error; one that is gone is a mistake.
bool IsLive(cublasHandle_t handle, const char* function) {
  const device::MutexLock lock(mutex);
  if (Handles().count(handle) != 0) return true;
  if (handle != nullptr) ReportMistake(absl::StrCat(function, ": the handle is gone"));
  return false;
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

// A kernel of cuBLAS may write all of its workspace before it reads its arrays. It is large: here
// only the ends are written.
absl::Status FillWorkspace(void* workspace, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(ReachableBytes(workspace, bytes).status());
  const int64_t filled = std::min<int64_t>(bytes, 4096);
  for (const int64_t begin : {int64_t{0}, bytes - filled}) {
    BRIGADE_ASSIGN_OR_RETURN(void* const end,
                             WritableBytes(static_cast<char*>(workspace) + begin, filled));
    std::memset(end, 0xa5, static_cast<size_t>(filled));
  }
  return absl::OkStatus();
}

// Only where the output has fewer bits than the fp32 in which products are added.
bool ReducesIn16Bits(GemmType output, cublasMath_t mode) {
  constexpr int kFlag = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  return output != GemmType::kFloat32 && (static_cast<int>(mode) & kFlag) == 0 &&
         mode != CUBLAS_PEDANTIC_MATH;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  int current = 0;
  if (cudaGetDevice(&current) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  // A product runs on its stream's thread.
  static const bool is_single = (openblas_set_num_threads(1), true);
  static_cast<void>(is_single);
  const device::MutexLock lock(mutex);
  Contexts().push_back(std::make_unique<cublasContext>());
  *handle = Contexts().back().get();
  (*handle)->device = current;
  Handles().insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (!IsLive(handle, "cublasDestroy")) return CUBLAS_STATUS_NOT_INITIALIZED;
  const device::MutexLock lock(mutex);
  Handles().erase(handle);
  return CUBLAS_STATUS_SUCCESS;
}

// Brings the library's own workspace back.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (!IsLive(handle, "cublasSetStream")) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  handle->workspace = nullptr;
  handle->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (!IsLive(handle, "cublasSetWorkspace")) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  handle->workspace = workspace;
  handle->workspace_bytes = workspace == nullptr ? 0 : bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (!IsLive(handle, "cublasSetMathMode")) return CUBLAS_STATUS_NOT_INITIALIZED;
  constexpr int kFlag = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  const int base = static_cast<int>(mode) & ~kFlag;
  if (base < 0 || base > CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH) return CUBLAS_STATUS_INVALID_VALUE;
  // Tensor cores for fp32, TF32 and the emulations of fp32 are not here.
  if (base != CUBLAS_DEFAULT_MATH && base != CUBLAS_PEDANTIC_MATH) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  handle->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  if (!IsLive(handle, "cublasGetMathMode")) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (mode == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *mode = handle->math_mode;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "no status of this library";
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
  if (!IsLive(handle, "cublasGemmStridedBatchedEx")) return CUBLAS_STATUS_NOT_INITIALIZED;
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
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (current != handle->device) {
    ReportMistake(absl::StrCat("cublasGemmStridedBatchedEx: a handle of device ", handle->device,
                               " while device ", current, " is current"));
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  if (m == 0 || n == 0 || batch == 0) return CUBLAS_STATUS_SUCCESS;

  GemmCall call = {.m = m, .n = n, .k = k, .batch = batch};
  call.a = {const_cast<void*>(a), *in, a_leading, a_stride, transa != CUBLAS_OP_N};
  call.b = {const_cast<void*>(b), *in, b_leading, b_stride, transb != CUBLAS_OP_N};
  call.c = {c, *out, c_leading, c_stride};
  call.alpha = *static_cast<const float*>(alpha);
  call.beta = *static_cast<const float*>(beta);
  call.reduces_in_16_bits = ReducesIn16Bits(*out, handle->math_mode);
  const cudaError_t enqueued = EnqueueKernel(
      handle->stream, "cublasGemmStridedBatchedEx",
      [call, workspace = handle->workspace, bytes = handle->workspace_bytes] {
        BRIGADE_RETURN_IF_ERROR(FillWorkspace(workspace, static_cast<int64_t>(bytes)));
        return RunGemm(call);
      });
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
