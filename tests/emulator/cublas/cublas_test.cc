// cuBLAS's stand-in against sums in double, and what it refuses.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "brigade/emulator/runtime/control.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/emulator/device_array.h"
#include "brigade/tests/testing/sanitizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::emulator {
namespace {

using precision::BFloat16;
using precision::Half;

template <typename T>
constexpr cudaDataType kCudaType = CUDA_R_32F;
template <>
constexpr cudaDataType kCudaType<Half> = CUDA_R_16F;
template <>
constexpr cudaDataType kCudaType<BFloat16> = CUDA_R_16BF;

// The largest relative error of a rounding.
template <typename T>
constexpr double kHalfStep = 0x1p-24;
template <>
constexpr double kHalfStep<Half> = 0x1p-11;
template <>
constexpr double kHalfStep<BFloat16> = 0x1p-8;

class CublasTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cublasCreate_v2(&handle_), CUBLAS_STATUS_SUCCESS); }
  void TearDown() override { EXPECT_EQ(cublasDestroy_v2(handle_), CUBLAS_STATUS_SUCCESS); }

  void DisallowReducedPrecision() {
    ASSERT_EQ(cublasSetMathMode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
              CUBLAS_STATUS_SUCCESS);
  }

  // c[0] = sum of a[l] * b[l].
  template <typename Out, typename T>
  float Dot(const std::vector<T>& a, const std::vector<T>& b) {
    const float one = 1, zero = 0;
    const DeviceArray<T> device_a(a), device_b(b);
    const DeviceArray<Out> c({Out(NAN)});
    const int k = static_cast<int>(a.size());
    EXPECT_EQ(cublasGemmStridedBatchedEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, k, &one,
                                         device_a.data(), kCudaType<T>, k, 0, device_b.data(),
                                         kCudaType<T>, k, 0, &zero, c.data(), kCudaType<Out>, 1, 0,
                                         1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    return static_cast<float>(c.Read()[0]);
  }

  cublasHandle_t handle_ = nullptr;
};

template <typename T>
class CublasTypesTest : public CublasTest {};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(CublasTypesTest, Types);

TYPED_TEST(CublasTypesTest, ProductsAreSumsOfTermsRoundedOnce) {
  using T = TypeParam;
  this->DisallowReducedPrecision();
  constexpr int kM = 5, kN = 4, kK = 37, kBatch = 2;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1, 1);
  for (int flags = 0; flags < 8; ++flags) {
    const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0, adds = (flags & 4) != 0;
    const int lda = (ta ? kK : kM) + 1, ldb = (tb ? kN : kK) + 2, ldc = kM + 3;
    const int64_t a_stride = lda * (ta ? kM : kK), b_stride = ldb * (tb ? kK : kN);
    const int64_t c_stride = ldc * kN;
    std::vector<T> a(kBatch * a_stride), b(kBatch * b_stride), c(kBatch * c_stride);
    for (auto* const array : {&a, &b, &c}) {
      for (T& value : *array) value = T(values(random));
    }
    const std::vector<T> before = c;
    // What is not read may be anything.
    if (!adds) std::fill(c.begin(), c.end(), T(NAN));
    const std::vector<T> left = c;
    const DeviceArray<T> device_a(a), device_b(b), device_c(c);
    const float alpha = 0.5f, beta = adds ? 2.0f : 0.0f;
    ASSERT_EQ(cublasGemmStridedBatchedEx(
                  this->handle_, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, kM,
                  kN, kK, &alpha, device_a.data(), kCudaType<T>, lda, a_stride, device_b.data(),
                  kCudaType<T>, ldb, b_stride, &beta, device_c.data(), kCudaType<T>, ldc, c_stride,
                  kBatch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
    c = device_c.Read();
    const auto at = [](const std::vector<T>& array, int64_t begin, int row, int column, int leading,
                       bool transposed) {
      return static_cast<double>(static_cast<float>(
          array[begin + (transposed ? column + row * leading : row + column * leading)]));
    };
    for (int p = 0; p < kBatch; ++p) {
      for (int i = 0; i < kM; ++i) {
        for (int j = 0; j < kN; ++j) {
          double sum = 0, magnitude = 0;
          for (int l = 0; l < kK; ++l) {
            const double term =
                at(a, p * a_stride, i, l, lda, ta) * at(b, p * b_stride, l, j, ldb, tb);
            sum += term;
            magnitude += std::abs(term);
          }
          sum = alpha * sum + beta * at(before, p * c_stride, i, j, ldc, false);
          // fp32's rounding of each of the sum's steps, and half a step of T.
          const double tolerance = std::abs(sum) * kHalfStep<T> +
                                   (kK + 3) * kHalfStep<float> * (magnitude + std::abs(sum));
          EXPECT_NEAR(at(c, p * c_stride, i, j, ldc, false), sum, tolerance) << flags;
        }
      }
      for (int64_t i = p * c_stride; i < (p + 1) * c_stride; ++i) {
        if (i % ldc < kM) continue;
        EXPECT_EQ(std::memcmp(&c[i], &left[i], sizeof(T)), 0) << i << " is between the columns";
      }
    }
  }
}

// 1024, 62 ones and -1024, of which bf16 has no sum but the last.
TEST_F(CublasTest, SumsIn16BitsAreRoundedOnTheWayUnlessThatIsForbidden) {
  std::vector<BFloat16> a(64, BFloat16(1.0f));
  const std::vector<BFloat16> ones = a;
  a.front() = BFloat16(1024.0f);
  a.back() = BFloat16(-1024.0f);
  EXPECT_NE(Dot<BFloat16>(a, ones), 62.0f);
  // The output's type decides.
  EXPECT_EQ(Dot<float>(a, ones), 62.0f);
  ASSERT_EQ(cublasSetMathMode(handle_, CUBLAS_PEDANTIC_MATH), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Dot<BFloat16>(a, ones), 62.0f);
  ASSERT_EQ(cublasSetMathMode(handle_, CUBLAS_DEFAULT_MATH), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(Dot<BFloat16>(a, ones), 62.0f);
  DisallowReducedPrecision();
  EXPECT_EQ(Dot<BFloat16>(a, ones), 62.0f);
  cublasMath_t mode = CUBLAS_DEFAULT_MATH;
  EXPECT_EQ(cublasGetMathMode(handle_, &mode), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(mode, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
}

TEST_F(CublasTest, Fp32IsNeverReducedIn16Bits) {
  std::vector<float> a(64, 1.0f);
  const std::vector<float> ones = a;
  a.front() = 4096.0f;
  a.back() = -4096.0f;
  EXPECT_EQ(Dot<float>(a, ones), 62.0f);
}

// c = a b in fp32, without transposes, until a test says otherwise.
struct Call {
  int m = 2, n = 3, k = 4;
  int a_leading = 2, b_leading = 4, c_leading = 2, batch = 1;
  cublasOperation_t a_operation = CUBLAS_OP_N, b_operation = CUBLAS_OP_N;
  const float* alpha = nullptr;
  const float* beta = nullptr;
  cudaDataType b_type = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

TEST_F(CublasTest, BadArgumentsHaveCublassStatus) {
  const DeviceArray<float> a(std::vector<float>(16)), b(std::vector<float>(16)),
      c(std::vector<float>(16));
  const float one = 1;
  const auto gemm = [&](const Call& call) {
    return cublasGemmStridedBatchedEx(
        handle_, call.a_operation, call.b_operation, call.m, call.n, call.k, call.alpha, a.data(),
        CUDA_R_32F, call.a_leading, 0, b.data(), call.b_type, call.b_leading, 0, call.beta,
        c.data(), CUDA_R_32F, call.c_leading, 0, call.batch, call.compute, CUBLAS_GEMM_DEFAULT);
  };
  const Call good = {.alpha = &one, .beta = &one};
  const auto with = [&](const auto& change) {
    Call call = good;
    change(call);
    return gemm(call);
  };
  EXPECT_EQ(gemm(good), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with([](Call& it) { it.k = 0, it.b_leading = 1; }), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with([](Call& it) { it.batch = 0; }), CUBLAS_STATUS_SUCCESS);
  constexpr auto kTransposed = CUBLAS_OP_T;
  EXPECT_EQ(with([](Call& it) { it.a_operation = kTransposed, it.a_leading = 4; }),
            CUBLAS_STATUS_SUCCESS);
  constexpr auto kInvalid = CUBLAS_STATUS_INVALID_VALUE;
  EXPECT_EQ(with([](Call& it) { it.m = -1; }), kInvalid);
  EXPECT_EQ(with([](Call& it) { it.batch = -1; }), kInvalid);
  EXPECT_EQ(with([](Call& it) { it.a_leading = 1; }), kInvalid);
  EXPECT_EQ(with([](Call& it) { it.a_operation = kTransposed, it.a_leading = 3; }), kInvalid);
  EXPECT_EQ(with([](Call& it) { it.b_leading = 3; }), kInvalid);
  EXPECT_EQ(with([](Call& it) { it.b_operation = kTransposed, it.b_leading = 2; }), kInvalid);
  EXPECT_EQ(with([](Call& it) { it.c_leading = 1; }), kInvalid);
  EXPECT_EQ(with([](Call& it) { it.alpha = nullptr; }), kInvalid);
  EXPECT_EQ(with([](Call& it) { it.beta = nullptr; }), kInvalid);
  // To a sanitizer such a value is a mistake wherever it is read.
  if (!brigade::testing::kSanitizer) {
    EXPECT_EQ(with([](Call& it) { it.a_operation = static_cast<cublasOperation_t>(7); }), kInvalid);
    EXPECT_EQ(cublasSetMathMode(handle_, static_cast<cublasMath_t>(-2)), kInvalid);
  }
  constexpr auto kNotSupported = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(with([](Call& it) { it.b_type = CUDA_R_16F; }), kNotSupported);
  EXPECT_EQ(with([](Call& it) { it.compute = CUBLAS_COMPUTE_64F; }), kNotSupported);
  EXPECT_EQ(cublasSetMathMode(handle_, CUBLAS_TENSOR_OP_MATH), kNotSupported);
  EXPECT_EQ(cublasSetMathMode(handle_, CUBLAS_TF32_TENSOR_OP_MATH), kNotSupported);
}

// In a stream between copies, and in each replay of a graph.
TEST_F(CublasTest, ProductsRunInTheirStreamAndInGraphs) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cublasSetStream_v2(handle_, stream), CUBLAS_STATUS_SUCCESS);
  const DeviceArray<float> a({2}), b({3}), sum({0});
  const auto add = [&] {
    const float one = 1;
    EXPECT_EQ(
        cublasGemmStridedBatchedEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.data(),
                                   CUDA_R_32F, 1, 0, b.data(), CUDA_R_32F, 1, 0, &one, sum.data(),
                                   CUDA_R_32F, 1, 0, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        CUBLAS_STATUS_SUCCESS);
  };
  add();
  // Both come behind the product only in its stream.
  EXPECT_EQ(cudaMemcpyAsync(a.data(), b.data(), sizeof(float), cudaMemcpyDefault, stream),
            cudaSuccess);
  EXPECT_EQ(sum.Read(stream)[0], 6);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  add();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(sum.Read(stream)[0], 6);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_EQ(sum.Read(stream)[0], 6 + 9 + 9);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CublasTest, HandlesAndWorkspacesAreChecked) {
  alignas(256) static char workspace[512];
  EXPECT_EQ(cublasSetWorkspace_v2(handle_, workspace, 512), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSetWorkspace_v2(handle_, workspace + 128, 256), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasCreate_v2(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetStream_v2(nullptr, nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_THAT(TakeReports(), ::testing::IsEmpty());
  cublasHandle_t gone = nullptr;
  ASSERT_EQ(cublasCreate_v2(&gone), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasDestroy_v2(gone), CUBLAS_STATUS_SUCCESS);
  cublasHandle_t next = nullptr;
  ASSERT_EQ(cublasCreate_v2(&next), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(next, gone);
  EXPECT_EQ(cublasDestroy_v2(gone), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasSetMathMode(gone, CUBLAS_DEFAULT_MATH), CUBLAS_STATUS_NOT_INITIALIZED);
  const auto reports = TakeReports();
  ASSERT_EQ(reports.size(), 2);
  EXPECT_EQ(reports[0].text, "cublasDestroy: the handle is gone");
  EXPECT_EQ(reports[1].text, "cublasSetMathMode: the handle is gone");
  EXPECT_EQ(cublasDestroy_v2(next), CUBLAS_STATUS_SUCCESS);
  EXPECT_STREQ(cublasGetStatusString(CUBLAS_STATUS_NOT_INITIALIZED),
               "CUBLAS_STATUS_NOT_INITIALIZED");
}

}  // namespace
}  // namespace brigade::emulator
