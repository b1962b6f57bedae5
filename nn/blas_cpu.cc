// Matrix products on the CPU. Work: 2 m n k operations; for 16-bit types that the processor does
// not multiply also a conversion of each operand, 6 bytes an element, which costs 1 / (the other
// dimension) of the product's time.

#include "brigade/nn/blas_cpu.h"

#include <cblas.h>

#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/simd.h"
#include "brigade/nn/arrays.h"
#include "brigade/nn/blas_onednn.h"
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

// The library of this machine, where kernels use AVX-512 as it does.
const OneDnn* UsedOneDnn() {
  if (kernels::CurrentSimdTarget() != kernels::SimdTarget::kAvx512) return nullptr;
  return OneDnn::Get();
}

// By oneDNN where there is one, of float; else by OpenBLAS.
template <typename W>
absl::Status Multiply(const OneDnn* onednn, const GemmArguments& g, Matrix<const W> a,
                      Matrix<const W> b, W beta, Matrix<W> c) {
  if constexpr (std::is_same_v<W, float>) {
    if (onednn != nullptr) {
      return onednn->Multiply(g, a.data, a.leading, b.data, b.leading, beta, c.data, c.leading);
    }
  }
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
  return absl::OkStatus();
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
absl::Status Product(const OneDnn* onednn, const GemmArguments& g, int64_t outer, int64_t inner,
                     float* workspace) {
  const T* const a = Address<T>(g.a, outer, inner);
  const T* const b = Address<T>(g.b, outer, inner);
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return Multiply<T>(onednn, g, {a, g.a.leading}, {b, g.b.leading}, T(g.accumulate),
                       {Address<T>(g.c, outer, inner), g.c.leading});
  } else {
    const Matrix<const float> wide_a = Convert(g.a, a, g.m, g.k, workspace);
    const Matrix<const float> wide_b = Convert(g.b, b, g.k, g.n, workspace + g.m * g.k);
    float* const product = workspace + g.m * g.k + g.k * g.n;
    if (g.type_of_c() != g.dtype) {
      return Multiply<float>(onednn, g, wide_a, wide_b, static_cast<float>(g.accumulate),
                             {Address<float>(g.c, outer, inner), g.c.leading});
    }
    BRIGADE_RETURN_IF_ERROR(Multiply<float>(onednn, g, wide_a, wide_b, 0.0f, {product, g.n}));
    Narrow(g, product, Address<T>(g.c, outer, inner));
    return absl::OkStatus();
  }
}

// As Product, by oneDNN's code for 16-bit numbers.
template <typename T>
absl::Status Product(OneDnn::Product& product, const GemmArguments& g, int64_t outer, int64_t inner,
                     void* workspace) {
  void* const c = g.type_of_c() == g.dtype ? static_cast<void*>(Address<T>(g.c, outer, inner))
                                           : static_cast<void*>(Address<float>(g.c, outer, inner));
  return product.Run(Address<T>(g.a, outer, inner), Address<T>(g.b, outer, inner), c, workspace);
}

// Runs `product(outer, inner)` for all of the batches.
template <typename Call>
absl::Status ForEachProduct(const GemmArguments& g, const Call& product) {
  for (int64_t outer = 0; outer < g.outer_batch; ++outer) {
    for (int64_t inner = 0; inner < g.batch; ++inner) {
      BRIGADE_RETURN_IF_ERROR(product(outer, inner));
    }
  }
  return absl::OkStatus();
}

// What oneDNN's code for a product depends on: not addresses and batches.
auto ShapeOf(const GemmArguments& g) {
  return std::make_tuple(g.dtype, g.type_of_c(), g.m, g.n, g.k, g.a.leading, g.a.transposed,
                         g.b.leading, g.b.transposed, g.c.leading, g.scale, g.accumulate);
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
    const OneDnn* const onednn = UsedOneDnn();
    OneDnn::Product* const prepared = Prepared(g, onednn);
    return WithType("gemm", g.dtype, [&](auto tag) {
      using T = decltype(tag);
      float* const workspace = Typed<float>(workspace_.data());
      return stream.Enqueue(operation, [g, workspace, onednn, prepared](device::ThreadPool&) {
        return ForEachProduct(g, [&](int64_t outer, int64_t inner) {
          if (prepared != nullptr) return Product<T>(*prepared, g, outer, inner, workspace);
          return Product<T>(onednn, g, outer, inner, workspace);
        });
      });
    });
  }

 private:
  // oneDNN's code for the product, made when its shape is first seen; null if there is none.
  OneDnn::Product* Prepared(const GemmArguments& g, const OneDnn* onednn) {
    if (onednn == nullptr || !onednn->Multiplies(g.dtype)) return nullptr;
    const auto [at, is_new] = products_.try_emplace(ShapeOf(g));
    if (is_new) at->second = onednn->Prepare(g, WorkspaceBytes(g.dtype, g.m, g.n, g.k));
    return at->second.get();
  }

  const device::Buffer workspace_;
  std::map<decltype(ShapeOf({})), std::unique_ptr<OneDnn::Product>> products_;
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
