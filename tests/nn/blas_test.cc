#include "brigade/nn/blas.h"

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::nn {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

template <typename T>
class BlasTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16, double>;
TYPED_TEST_SUITE(BlasTest, Types);

// Small integers, whose products every type holds: the sums are exact.
template <typename T>
absl::Span<T> Integers(Lab& lab, int64_t size) {
  const absl::Span<T> array = lab.Noise<T>(size);
  for (T& value : array)
    value = T(static_cast<float>(static_cast<int>(static_cast<float>(value) * 3)));
  return array;
}

TYPED_TEST(BlasTest, EveryTranspositionBatchAndGapGivesTheExactProduct) {
  using T = TypeParam;
  if (kOnGpu && std::is_same_v<T, double>) GTEST_SKIP() << "products of doubles are for the CPU";
  constexpr int64_t kM = 5, kN = 4, kK = 7, kBatch = 2, kOuter = 3, kGap = 3;
  constexpr float kScale = 0.5f;
  for (int options = 0; options < 8; ++options) {
    SCOPED_TRACE(options);
    const bool a_transposed = options & 1, b_transposed = options & 2, accumulate = options & 4;
    Lab lab;
    const int64_t a_rows = a_transposed ? kK : kM, a_leading = (a_transposed ? kM : kK) + kGap;
    const int64_t b_rows = b_transposed ? kN : kK, b_leading = (b_transposed ? kK : kN) + kGap;
    const int64_t c_leading = kN + kGap;
    const int64_t a_stride = a_rows * a_leading, b_stride = b_rows * b_leading,
                  c_stride = kM * c_leading;
    const auto a = Integers<T>(lab, kOuter * kBatch * a_stride);
    const auto b = Integers<T>(lab, kOuter * kBatch * b_stride);
    const auto c = Integers<T>(lab, kOuter * kBatch * c_stride);
    const std::vector<T> before(c.begin(), c.end());
    auto blas =
        Blas::Create(lab.context(), Blas::WorkspaceBytes(precision::kDType<T>, kM, kN, kK)).value();
    ASSERT_OK(blas->Gemm({.dtype = precision::kDType<T>,
                          .m = kM,
                          .n = kN,
                          .k = kK,
                          .a = {a.data(), a_leading, a_transposed, a_stride, kBatch * a_stride},
                          .b = {b.data(), b_leading, b_transposed, b_stride, kBatch * b_stride},
                          .c = {c.data(), c_leading, false, c_stride, kBatch * c_stride},
                          .batch = kBatch,
                          .outer_batch = kOuter,
                          .scale = kScale,
                          .accumulate = accumulate},
                         lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (int64_t product = 0; product < kOuter * kBatch; ++product) {
      const T* const pa = a.data() + product * a_stride;
      const T* const pb = b.data() + product * b_stride;
      for (int64_t i = 0; i < kM; ++i) {
        for (int64_t j = 0; j < c_leading; ++j) {
          const int64_t at = product * c_stride + i * c_leading + j;
          float sum = j >= kN || accumulate ? static_cast<float>(before[at]) : 0.0f;
          for (int64_t l = 0; l < kK && j < kN; ++l) {
            sum +=
                kScale *
                static_cast<float>(a_transposed ? pa[l * a_leading + i] : pa[i * a_leading + l]) *
                static_cast<float>(b_transposed ? pb[j * b_leading + l] : pb[l * b_leading + j]);
          }
          ASSERT_EQ(static_cast<float>(c[at]), sum) << product << " " << i << " " << j;
        }
      }
    }
  }
}

// 4096, 62 ones and -4096: a 16-bit type has none of the sums between.
TYPED_TEST(BlasTest, SumsAreRoundedOnceAtTheEnd) {
  using T = TypeParam;
  if (kOnGpu && std::is_same_v<T, double>) GTEST_SKIP() << "products of doubles are for the CPU";
  constexpr int64_t kK = 64;
  Lab lab;
  const auto a = lab.Noise<T>(kK), b = lab.Noise<T>(kK), c = lab.Noise<T>(1);
  for (int64_t i = 0; i < kK; ++i) a[i] = b[i] = T(1.0f);
  a[0] = T(4096.0f);
  a[kK - 1] = T(-4096.0f);
  auto blas =
      Blas::Create(lab.context(), Blas::WorkspaceBytes(precision::kDType<T>, 1, 1, kK)).value();
  ASSERT_OK(blas->Gemm({.dtype = precision::kDType<T>,
                        .m = 1,
                        .n = 1,
                        .k = kK,
                        .a = {a.data(), kK},
                        .b = {b.data(), 1},
                        .c = {c.data(), 1}},
                       lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(static_cast<float>(c[0]), 62.0f);
}

// Sums that 16-bit types do not have come as they are, also added to others.
TYPED_TEST(BlasTest, SumsMayComeInFloat) {
  using T = TypeParam;
  constexpr int64_t kM = 2, kK = 64, kLeading = 3;
  Lab lab;
  const auto a = lab.Noise<T>(kM * kK), b = lab.Noise<T>(kK);
  const auto c = lab.Noise<float>(2 * kM * kLeading);
  for (int64_t i = 0; i < kM * kK; ++i) a[i] = T(i < kK ? 1.0f : 2.0f);
  for (int64_t i = 0; i < kK; ++i) b[i] = T(1.0f);
  a[0] = T(4096.0f);
  auto blas =
      Blas::Create(lab.context(), Blas::WorkspaceBytes(precision::kDType<T>, kM, 1, kK)).value();
  GemmArguments arguments = {.dtype = precision::kDType<T>,
                             .m = kM,
                             .n = 1,
                             .k = kK,
                             .a = {a.data(), kK},
                             .b = {b.data(), 1, false},
                             .c = {c.data(), kLeading, false, 0, kM * kLeading},
                             .outer_batch = 2,
                             .c_dtype = DType::kFloat32};
  if (sizeof(T) == 8) {
    EXPECT_THAT(
        blas->Gemm(arguments, lab.stream()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("c is fp32 and the others fp64")));
    arguments.c_dtype = DType::kFloat16;
    EXPECT_THAT(blas->Gemm(arguments, lab.stream()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("c is fp16")));
    return;
  }
  const std::vector<float> before(c.begin(), c.end());
  ASSERT_OK(blas->Gemm(arguments, lab.stream()));
  arguments.accumulate = true;
  ASSERT_OK(blas->Gemm(arguments, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t i = 0; i < 2 * kM * kLeading; ++i) {
    const bool is_written = i % kLeading == 0;
    const float sum = i / kLeading % kM == 0 ? 4096.0f + 63.0f : 128.0f;
    if (is_written) {
      EXPECT_EQ(c[i], 2 * sum) << i;
    } else {
      EXPECT_EQ(std::memcmp(&c[i], &before[i], sizeof(float)), 0) << i;
    }
  }
}

// A copy to an operand's first or last element on another stream is a race.
TEST(BlasRacesTest, ReadsAndWritesAreDeclared) {
  constexpr int64_t kSize = 3, kLeading = 5, kElements = 2 * kLeading + kSize;
  device::RaceChecker checker;
  auto context = device::Context::Create({.device = BRIGADE_LAB_DEVICE,
                                          .compute_threads = 1,
                                          .checks = true,
                                          .race_checker = &checker})
                     .value();
  auto compute = context->CreateStream("compute").value();
  auto other = context->CreateStream("other").value();
  auto blas = Blas::Create(*context, 0).value();
  std::vector<device::Buffer> arrays;
  for (int i = 0; i < 4; ++i) {
    arrays.push_back(
        context->AllocateHost(kElements * 4, device::Purpose::kScratch, "array").value());
    std::memset(arrays.back().data(), 0, kElements * 4);
  }
  const auto races_with = [&](int array, int64_t element) {
    checker.ClearReports();
    EXPECT_OK(blas->Gemm({.dtype = DType::kFloat32,
                          .m = kSize,
                          .n = kSize,
                          .k = kSize,
                          .a = {arrays[0].data(), kLeading},
                          .b = {arrays[1].data(), kLeading, true},
                          .c = {arrays[2].data(), kLeading}},
                         *compute));
    EXPECT_OK(other->Copy(arrays[array].as<float>().data() + element, arrays[3].data(), 4));
    const size_t races = checker.reports().size();
    compute->Synchronize().IgnoreError();
    other->Synchronize().IgnoreError();
    EXPECT_OK(compute->Reset());
    EXPECT_OK(other->Reset());
    return races;
  };
  for (int array = 0; array < 3; ++array) {
    SCOPED_TRACE(array);
    EXPECT_EQ(races_with(array, kElements - 1), 1u);
    EXPECT_EQ(races_with(array, 0), 1u);
  }
}

GemmArguments Square(DType dtype, int64_t size) {
  const Operand operand = {nullptr, size};
  return {dtype, size, size, size, operand, operand, operand};
}

TEST(BlasErrorsTest, AProductThatNeedsMoreWorkspaceIsRefused) {
  if (kOnGpu) GTEST_SKIP() << "cuBLAS needs none";
  Lab lab;
  auto blas = Blas::Create(lab.context(), 100).value();
  EXPECT_EQ(
      blas->Gemm(Square(DType::kFloat16, 4), lab.stream()),
      absl::ResourceExhaustedError("gemm of 4 x 4 x 4 needs a workspace of 192 bytes and has 100"));
}

TEST(BlasErrorsTest, ASizeThatIsNoIntIsRefusedByName) {
  Lab lab;
  auto blas = Blas::Create(lab.context(), 0).value();
  GemmArguments gemm = Square(DType::kFloat32, 4);
  gemm.n = 0;
  EXPECT_EQ(blas->Gemm(gemm, lab.stream()),
            absl::InvalidArgumentError("gemm: n is 0; it must be in 1 to 2147483647"));
  gemm = Square(DType::kFloat32, 4);
  gemm.b.leading = int64_t{1} << 31;
  EXPECT_EQ(blas->Gemm(gemm, lab.stream()),
            absl::InvalidArgumentError(
                "gemm: leading of b is 2147483648; it must be in 1 to 2147483647"));
}

}  // namespace
}  // namespace brigade::nn
