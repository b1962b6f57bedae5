#include "brigade/nn/blas_cuda.h"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/cuda/cuda_device_guard.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/arrays.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::nn {
namespace {

using precision::DType;

// The functions of cuBLAS, from the library that the machine has: binaries start without it.
struct Cublas {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSetWorkspace_v2) set_workspace;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasGetStatusString) status_string;
  // cublasGemmStridedBatchedEx, which C++ sees twice.
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                         const void* alpha, const void* a, cudaDataType, int, long long,
                         const void* b, cudaDataType, int, long long, const void* beta, void* c,
                         cudaDataType, int, long long, int batch, cublasComputeType_t,
                         cublasGemmAlgo_t);

  static absl::StatusOr<const Cublas*> Get() {
    static const absl::StatusOr<Cublas> functions = Load();
    if (!functions.ok()) return functions.status();
    return &*functions;
  }

 private:
  static absl::StatusOr<Cublas> Load() {
    void* library = nullptr;
    std::string reasons;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
      library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
      absl::StrAppend(&reasons, "; ", dlerror());
    }
    if (library == nullptr) {
      return absl::UnavailableError(absl::StrCat("cuBLAS is not to be found", reasons));
    }
    Cublas cublas;
    const char* missing = nullptr;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) missing = name;
    };
    find(cublas.create, "cublasCreate_v2");
    find(cublas.destroy, "cublasDestroy_v2");
    find(cublas.set_stream, "cublasSetStream_v2");
    find(cublas.set_workspace, "cublasSetWorkspace_v2");
    find(cublas.set_math_mode, "cublasSetMathMode");
    find(cublas.status_string, "cublasGetStatusString");
    find(cublas.gemm, "cublasGemmStridedBatchedEx");
    if (missing != nullptr) {
      return absl::UnavailableError(absl::StrCat("cuBLAS has no ", missing));
    }
    return cublas;
  }
};

cudaDataType_t DataType(DType dtype) {
  return dtype == DType::kFloat16    ? CUDA_R_16F
         : dtype == DType::kBFloat16 ? CUDA_R_16BF
                                     : CUDA_R_32F;
}

cublasOperation_t Transpose(const Operand& operand) {
  return operand.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

class CudaBlas final : public Blas {
 public:
  CudaBlas(const Cublas& cublas, int ordinal, cublasHandle_t handle, device::Buffer workspace)
      : cublas_(cublas), ordinal_(ordinal), handle_(handle), workspace_(std::move(workspace)) {}
  ~CudaBlas() override {
    const device::CudaDeviceGuard guard(ordinal_);
    cublas_.destroy(handle_);
  }

  absl::Status Check(cublasStatus_t status) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("cuBLAS: ", cublas_.status_string(status)));
  }

  // How much of it cuBLAS takes is not known.
  device::Access Workspace(const GemmArguments&) const override {
    return device::Writes(workspace_.data(), workspace_.bytes());
  }

  absl::Status Enqueue(const GemmArguments& g, const device::Operation& operation,
                       device::Stream& stream) override {
    if (!precision::IsTrainingFormat(g.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat("gemm: dtype is ",
                                                     precision::ShortName(g.dtype),
                                                     "; on CUDA it must be fp32, fp16 or bf16"));
    }
    return stream.Launch(operation, [&](void* cuda_stream) -> absl::Status {
      BRIGADE_RETURN_IF_ERROR(
          Check(cublas_.set_stream(handle_, static_cast<cudaStream_t>(cuda_stream))));
      // Each time: setting the stream brings cuBLAS's own workspace back, which it may share
      // between streams.
      BRIGADE_RETURN_IF_ERROR(Check(cublas_.set_workspace(
          handle_, workspace_.data(), static_cast<size_t>(workspace_.bytes()))));
      for (int64_t outer = 0; outer < g.outer_batch; ++outer) {
        BRIGADE_RETURN_IF_ERROR(Check(Products(g, outer)));
      }
      return absl::OkStatus();
    });
  }

 private:
  // cuBLAS counts columns first: what it sees is the transpose of each matrix, and c^T = b^T a^T.
  cublasStatus_t Products(const GemmArguments& g, int64_t outer) const {
    const float alpha = static_cast<float>(g.scale), beta = g.accumulate ? 1.0f : 0.0f;
    const cudaDataType_t type = DataType(g.dtype);
    const auto address = [&](const Operand& operand, DType dtype) {
      return static_cast<char*>(operand.data) +
             outer * operand.outer_stride * precision::SizeOf(dtype);
    };
    const auto size = [](int64_t n) { return static_cast<int>(n); };
    return cublas_.gemm(handle_, Transpose(g.b), Transpose(g.a), size(g.n), size(g.m), size(g.k),
                        &alpha, address(g.b, g.dtype), type, size(g.b.leading), g.b.stride,
                        address(g.a, g.dtype), type, size(g.a.leading), g.a.stride, &beta,
                        address(g.c, g.type_of_c()), DataType(g.type_of_c()), size(g.c.leading),
                        g.c.stride, size(g.batch), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  }

  const Cublas& cublas_;
  const int ordinal_;
  const cublasHandle_t handle_;
  const device::Buffer workspace_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Blas>> CreateCudaBlas(device::Context& context,
                                                     int64_t workspace_bytes) {
  BRIGADE_ASSIGN_OR_RETURN(auto cublas, Cublas::Get());
  BRIGADE_ASSIGN_OR_RETURN(auto workspace,
                           context.Allocate(Blas::ScratchBytes(context.device(), workspace_bytes),
                                            device::Purpose::kScratch, "workspace of cuBLAS"));
  const int ordinal = context.device().ordinal;
  const device::CudaDeviceGuard guard(ordinal);  // a handle is of the device that is current
  cublasHandle_t handle = nullptr;
  if (const cublasStatus_t status = cublas->create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(absl::StrCat("cuBLAS: ", cublas->status_string(status)));
  }
  auto blas = std::make_unique<CudaBlas>(*cublas, ordinal, handle, std::move(workspace));
  // Products of 16-bit types are sums in fp32: by default cuBLAS may add parts of them in 16 bits.
  BRIGADE_RETURN_IF_ERROR(
      blas->Check(cublas->set_math_mode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  return blas;
}

}  // namespace brigade::nn
