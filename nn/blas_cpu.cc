// Matrix products on the CPU. Work: 2 m n k operations; for 16-bit types also a conversion of each
// operand, 6 bytes an element, which costs 1 / (the other dimension) of the product's time.

#include "brigade/nn/blas_cpu.h"

#include <cblas.h>

#include <mutex>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/simd.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/functions.h"

namespace brigade::nn {
namespace {

template <typename T>
T* Address(const Operand& operand, int64_t outer, int64_t inner) {
  return Typed<T>(operand.data) + outer * operand.outer_stride + inner * operand.stride;
}

CBLAS_TRANSPOSE Transpose(const Operand& operand) {
  return operand.transposed ? CblasTrans : CblasNoTrans;
}

template <typename T>
struct Matrix {
  T* data;
  int64_t leading;
};

template <typename W>
void Multiply(const GemmArguments& g, Matrix<const W> a, Matrix<const W> b, W beta, Matrix<W> c) {
  const auto gemm = [] {
    if constexpr (std::is_same_v<W, double>)
      return cblas_dgemm;
    else
      return cblas_sgemm;
  }();
  const auto size = [](int64_t n) { return static_cast<blasint>(n); };
  gemm(CblasRowMajor, Transpose(g.a), Transpose(g.b), size(g.m), size(g.n), size(g.k),
       static_cast<W>(g.scale), a.data, size(a.leading), b.data, size(b.leading), beta, c.data,
       size(c.leading));
}

// As stored, in float, without gaps.
template <typename T>
Matrix<const float> Convert(const Operand& operand, const T* from, int64_t rows, int64_t columns,
                            float* to) {
  if (operand.transposed) std::swap(rows, columns);
  kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
    for (int64_t r = 0; r < rows; ++r) {
      const T* const in = from + r * operand.leading;
      float* const out = to + r * columns;
      BRIGADE_SIMD_LOOP
      for (int64_t c = 0; c < columns; ++c) out[c] = static_cast<float>(in[c]);
    }
  });
  return {to, columns};
}

template <typename T>
void Narrow(const GemmArguments& g, const float* from, T* to) {
  kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
    for (int64_t r = 0; r < g.m; ++r) {
      const float* const in = from + r * g.n;
      T* const out = to + r * g.c.leading;
      BRIGADE_SIMD_LOOP
      for (int64_t c = 0; c < g.n; ++c) StoreGradient(out + c, g.accumulate, in[c]);
    }
  });
}

template <typename T>
void Product(const GemmArguments& g, int64_t outer, int64_t inner, float* workspace) {
  const T* const a = Address<T>(g.a, outer, inner);
  const T* const b = Address<T>(g.b, outer, inner);
  if constexpr (std::is_same_v<T, Wide<T>>) {
    Multiply<T>(g, {a, g.a.leading}, {b, g.b.leading}, T(g.accumulate),
                {Address<T>(g.c, outer, inner), g.c.leading});
  } else {
    const Matrix<const float> wide_a = Convert(g.a, a, g.m, g.k, workspace);
    const Matrix<const float> wide_b = Convert(g.b, b, g.k, g.n, workspace + g.m * g.k);
    float* const product = workspace + g.m * g.k + g.k * g.n;
    if (g.type_of_c() == g.dtype) {
      Multiply<float>(g, wide_a, wide_b, 0.0f, {product, g.n});
      Narrow(g, product, Address<T>(g.c, outer, inner));
    } else {
      Multiply<float>(g, wide_a, wide_b, static_cast<float>(g.accumulate),
                      {Address<float>(g.c, outer, inner), g.c.leading});
    }
  }
}

class CpuBlas final : public Blas {
 public:
  explicit CpuBlas(device::Buffer workspace) : workspace_(std::move(workspace)) {}

  device::Access Workspace(const GemmArguments& g) const override {
    return device::Writes(workspace_.data(), WorkspaceBytes(g.dtype, g.m, g.n, g.k));
  }

  absl::Status Enqueue(const GemmArguments& g, const device::Operation& operation,
                       device::Stream& stream) override {
    const int64_t needed = WorkspaceBytes(g.dtype, g.m, g.n, g.k);
    if (needed > workspace_.bytes()) {
      return absl::ResourceExhaustedError(absl::StrCat("gemm of ", g.m, " x ", g.n, " x ", g.k,
                                                       " needs a workspace of ", needed,
                                                       " bytes and has ", workspace_.bytes()));
    }
    return WithType("gemm", g.dtype, [&](auto tag) {
      using T = decltype(tag);
      float* const workspace = Typed<float>(workspace_.data());
      return stream.Enqueue(operation, [g, workspace](device::ThreadPool&) {
        for (int64_t outer = 0; outer < g.outer_batch; ++outer) {
          for (int64_t inner = 0; inner < g.batch; ++inner) Product<T>(g, outer, inner, workspace);
        }
        return absl::OkStatus();
      });
    });
  }

 private:
  const device::Buffer workspace_;
};

std::once_flag threads_set;

}  // namespace

absl::StatusOr<std::unique_ptr<Blas>> CreateCpuBlas(device::Context& context,
                                                    int64_t workspace_bytes) {
  // A rank's products run on its own stream's thread.
  std::call_once(threads_set, [] { openblas_set_num_threads(1); });
  BRIGADE_ASSIGN_OR_RETURN(
      auto workspace,
      context.Allocate(workspace_bytes, device::Purpose::kScratch, "workspace of gemm"));
  return std::make_unique<CpuBlas>(std::move(workspace));
}

}  // namespace brigade::nn
