#include "brigade/nn/blas.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/kernels/simd.h"
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

// One product with rows that are `gap` elements apart, and the exact one in double.
template <typename T>
class RandomProduct {
 public:
  struct Case {
    int64_t m, n, k;
    bool a_transposed = false, b_transposed = false, accumulate = false, sums_in_float = false;
    double scale = 1;
    int64_t gap = 0;
    // Elements from what the memory is aligned to.
    int64_t offset = 0;
  };

  RandomProduct(Lab& lab, const Case& of)
      : of_(of),
        a_(Matrix(lab.Noise<T>(Size(of.m, of.k, of.a_transposed)), of.k, of.m, of.a_transposed)),
        b_(Matrix(lab.Noise<T>(Size(of.k, of.n, of.b_transposed)), of.n, of.k, of.b_transposed)),
        c_(lab.Noise<T>(Size(of.m, of.n, false))),
        sums_(lab.Noise<float>(Size(of.m, of.n, false))),
        before_(c_.begin(), c_.end()),
        sums_before_(sums_.begin(), sums_.end()) {}

  GemmArguments Arguments() const {
    return {.dtype = precision::kDType<T>,
            .m = of_.m,
            .n = of_.n,
            .k = of_.k,
            .a = {a_.data, a_.leading, of_.a_transposed},
            .b = {b_.data, b_.leading, of_.b_transposed},
            .c = {of_.sums_in_float ? static_cast<void*>(sums_.data() + of_.offset)
                                    : static_cast<void*>(c_.data() + of_.offset),
                  of_.n + of_.gap},
            .scale = of_.scale,
            .accumulate = of_.accumulate,
            .c_dtype = of_.sums_in_float ? std::optional(DType::kFloat32) : std::nullopt};
  }

  // Each element within what k additions in float and one rounding to its type may lose; what lies
  // between the rows is as it was.
  void ExpectRight() const {
    const int64_t leading = of_.n + of_.gap;
    const auto at = [&](int64_t i) {
      return static_cast<double>(of_.sums_in_float ? sums_[i] : static_cast<float>(c_[i]));
    };
    const auto was = [&](int64_t i) {
      return static_cast<double>(of_.sums_in_float ? sums_before_[i]
                                                   : static_cast<float>(before_[i]));
    };
    const double unit = of_.sums_in_float || sizeof(T) == 4      ? 0x1p-24
                        : std::is_same_v<T, precision::BFloat16> ? 0x1p-8
                                                                 : 0x1p-11;
    int wrong = 0;
    for (int64_t i = 0; i < std::ssize(c_) && wrong < 5; ++i) {
      const int64_t row = (i - of_.offset) / leading, column = (i - of_.offset) % leading;
      if (i < of_.offset || row >= of_.m || column >= of_.n) {
        wrong += at(i) != was(i);
        EXPECT_EQ(at(i), was(i)) << "outside of c, element " << i;
        continue;
      }
      double sum = 0, absolute = 0;
      for (int64_t l = 0; l < of_.k; ++l) {
        const double term = of_.scale * a_.At(row, l) * b_.At(l, column);
        sum += term;
        absolute += std::abs(term);
      }
      if (of_.accumulate) {
        sum += was(i);
        absolute += std::abs(was(i));
      }
      const double bound = static_cast<double>(of_.k + 2) * 0x1p-24 * absolute +
                           unit * std::abs(sum) * 1.01 +
                           // fp16's subnormal numbers are 2^-24 apart.
                           (std::is_same_v<T, Half> && !of_.sums_in_float ? 0x1p-25 : 0);
      wrong += !(std::abs(at(i) - sum) <= bound);
      EXPECT_LE(std::abs(at(i) - sum), bound) << "row " << row << ", column " << column;
    }
  }

  // Of c, and of what is around it.
  std::vector<T> Result() const { return {c_.begin(), c_.end()}; }

 private:
  struct Stored {
    T* data;
    int64_t leading;
    bool transposed;
    double At(int64_t row, int64_t column) const {
      if (transposed) std::swap(row, column);
      return static_cast<double>(static_cast<float>(data[row * leading + column]));
    }
  };

  int64_t Size(int64_t rows, int64_t columns, bool transposed) const {
    if (transposed) std::swap(rows, columns);
    return of_.offset + rows * (columns + of_.gap);
  }
  Stored Matrix(absl::Span<T> memory, int64_t columns, int64_t rows, bool transposed) const {
    return {memory.data() + of_.offset, (transposed ? rows : columns) + of_.gap, transposed};
  }

  const Case of_;
  const Stored a_, b_;
  const absl::Span<T> c_;
  const absl::Span<float> sums_;
  const std::vector<T> before_;
  const std::vector<float> sums_before_;
};

template <typename T>
class RandomBlasTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kOnGpu) GTEST_SKIP() << "cuBLAS's sums and threads are its own";
  }

  using Case = typename RandomProduct<T>::Case;

  static void ExpectRight(const Case& of) {
    SCOPED_TRACE(absl::StrCat(of.m, " x ", of.n, " x ", of.k, of.a_transposed ? ", a^T" : "",
                              of.b_transposed ? ", b^T" : "", of.accumulate ? ", added" : "",
                              of.sums_in_float ? ", sums" : "", ", gap ", of.gap, ", offset ",
                              of.offset, ", times ", of.scale));
    Lab lab;
    const RandomProduct<T> product(lab, of);
    auto blas =
        Blas::Create(lab.context(), Blas::WorkspaceBytes(precision::kDType<T>, of.m, of.n, of.k))
            .value();
    ASSERT_OK(blas->Gemm(product.Arguments(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    product.ExpectRight();
  }
};
using RandomTypes = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(RandomBlasTest, RandomTypes);

// By each library: on less than AVX-512 it is OpenBLAS.
template <typename Check>
void WithEachLibrary(const Check& check) {
  for (const auto target : {kernels::SimdTarget::kAvx2, kernels::BestSimdTarget()}) {
    SCOPED_TRACE(static_cast<int>(target));
    kernels::SetSimdTarget(target);
    check();
  }
}

TYPED_TEST(RandomBlasTest, EverySizeIsWithinTheBoundOfItsSums) {
  WithEachLibrary([] {
    for (const int64_t m : {1, 2, 31, 33, 100}) {
      for (const int64_t n : {1, 16, 47, 65}) {
        for (const int64_t k : {1, 2, 3, 63, 129}) TestFixture::ExpectRight({m, n, k});
      }
    }
  });
}

TYPED_TEST(RandomBlasTest, EveryTranspositionGapAndOffsetIsWithinTheBound) {
  WithEachLibrary([] {
    for (int options = 0; options < 16; ++options) {
      for (const int64_t gap : {0, 1, 8}) {
        for (const double scale : {1.0, -0.75}) {
          TestFixture::ExpectRight({.m = 66,
                                    .n = 49,
                                    .k = 77,
                                    .a_transposed = (options & 1) != 0,
                                    .b_transposed = (options & 2) != 0,
                                    .accumulate = (options & 4) != 0,
                                    .sums_in_float = (options & 8) != 0,
                                    .scale = scale,
                                    .gap = gap,
                                    .offset = gap});
        }
      }
    }
  });
}

// Sums of 2048 rows, in which oneDNN and OpenBLAS cut k into blocks.
TYPED_TEST(RandomBlasTest, LongSumsAreWithinTheBound) {
  WithEachLibrary([] {
    TestFixture::ExpectRight({.m = 40, .n = 48, .k = 2048, .a_transposed = true});
    TestFixture::ExpectRight({.m = 3, .n = 5, .k = 5000, .accumulate = true});
  });
}

TYPED_TEST(RandomBlasTest, RanksThatMultiplyAtOnceHaveTheSameBits) {
  constexpr int kRanks = 4, kTimes = 3;
  std::vector<std::vector<TypeParam>> results(kRanks * kTimes);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int time = 0; time < kTimes; ++time) {
        Lab lab;
        const RandomProduct<TypeParam> product(lab, {100, 70, 300});
        auto blas = Blas::Create(lab.context(),
                                 Blas::WorkspaceBytes(precision::kDType<TypeParam>, 100, 70, 300))
                        .value();
        ASSERT_OK(blas->Gemm(product.Arguments(), lab.stream()));
        ASSERT_OK(lab.stream().Synchronize());
        results[rank * kTimes + time] = product.Result();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(TypeParam)), 0);
  }
}

// A library with threads of its own would start them for each rank.
TYPED_TEST(RandomBlasTest, ProductsStartNoThreads) {
  Lab lab;
  const RandomProduct<TypeParam> product(lab, {.m = 512, .n = 512, .k = 64});
  auto blas =
      Blas::Create(lab.context(), Blas::WorkspaceBytes(precision::kDType<TypeParam>, 512, 512, 64))
          .value();
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  const auto before = threads();
  ASSERT_OK(blas->Gemm(product.Arguments(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(threads(), before);
}

TYPED_TEST(RandomBlasTest, InfinitiesAndNanReachTheRowsAndColumnsThatHaveThem) {
  using T = TypeParam;
  WithEachLibrary([] {
    constexpr int64_t kSize = 40;
    Lab lab;
    const auto a = Integers<T>(lab, kSize * kSize), b = Integers<T>(lab, kSize * kSize),
               c = lab.Raw<T>(kSize * kSize);
    std::fill(b.begin(), b.end(), T(1.0f));
    a[3 * kSize + 5] = T(std::numeric_limits<float>::infinity());
    a[7 * kSize + 1] = T(std::numeric_limits<float>::quiet_NaN());
    auto blas =
        Blas::Create(lab.context(), Blas::WorkspaceBytes(precision::kDType<T>, kSize, kSize, kSize))
            .value();
    ASSERT_OK(blas->Gemm({.dtype = precision::kDType<T>,
                          .m = kSize,
                          .n = kSize,
                          .k = kSize,
                          .a = {a.data(), kSize},
                          .b = {b.data(), kSize},
                          .c = {c.data(), kSize}},
                         lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (int64_t i = 0; i < kSize * kSize; ++i) {
      const auto value = static_cast<float>(c[i]);
      if (i / kSize == 3) {
        EXPECT_EQ(value, std::numeric_limits<float>::infinity());
      } else if (i / kSize == 7) {
        EXPECT_TRUE(std::isnan(value));
      } else {
        EXPECT_TRUE(std::isfinite(value)) << i;
      }
    }
  });
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
