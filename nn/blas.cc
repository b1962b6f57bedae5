#include "brigade/nn/blas.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "brigade/nn/blas_cpu.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/precision/rounding.h"

#if BRIGADE_CUDA
#include "brigade/nn/blas_cuda.h"
#endif

namespace brigade::nn {
namespace {

// Elements from an operand's first to its last, all batches included.
int64_t Extent(const GemmArguments& g, const Operand& operand, int64_t rows, int64_t columns) {
  if (operand.transposed) std::swap(rows, columns);
  return (g.outer_batch - 1) * operand.outer_stride + (g.batch - 1) * operand.stride +
         (rows - 1) * operand.leading + columns;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Blas>> Blas::Create(device::Context& context,
                                                   int64_t workspace_bytes) {
#if BRIGADE_CUDA
  if (context.device().kind == device::DeviceKind::kCuda) {
    return CreateCudaBlas(context, workspace_bytes);
  }
#endif
  return CreateCpuBlas(context, workspace_bytes);
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

absl::Status Blas::Gemm(const GemmArguments& g, device::Stream& stream) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"m", g.m},
      {"n", g.n},
      {"k", g.k},
      {"batch", g.batch},
      {"outer_batch", g.outer_batch},
      {"leading of a", g.a.leading},
      {"leading of b", g.b.leading},
      {"leading of c", g.c.leading},
  };
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > std::numeric_limits<int>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("gemm: ", name, " is ", size, "; it must be in 1 to 2147483647"));
    }
  }
  if (std::isnan(g.scale)) return absl::InvalidArgumentError("gemm: scale is no number");
  if (g.type_of_c() != g.dtype &&
      (precision::SizeOf(g.dtype) != 2 || g.type_of_c() != precision::DType::kFloat32)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gemm: c is ", precision::ShortName(g.type_of_c()), " and the others ",
                     precision::ShortName(g.dtype)));
  }
  const int64_t size = precision::SizeOf(g.dtype), size_of_c = precision::SizeOf(g.type_of_c());
  const device::Access accesses[] = {device::Reads(g.a.data, size * Extent(g, g.a, g.m, g.k)),
                                     device::Reads(g.b.data, size * Extent(g, g.b, g.k, g.n)),
                                     device::Writes(g.c.data, size_of_c * Extent(g, g.c, g.m, g.n)),
                                     Workspace(g)};
  return Enqueue(g, {"gemm", accesses}, stream);
}

}  // namespace brigade::nn
