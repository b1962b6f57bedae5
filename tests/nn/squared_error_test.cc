#include "brigade/nn/squared_error.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/tests/nn/types_lab.h"
#include "gmock/gmock.h"

namespace brigade::nn {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

TEST(SquaredErrorTest, GradientIsThatOfTheFormula) {
  for (const int64_t columns : {1, 15, 16, 17, 65}) {
    SCOPED_TRACE(columns);
    Lab lab;
    constexpr int64_t kRows = 3;
    const MatrixShape shape = {DType::kFloat64, kRows, columns};
    const auto y = lab.Noise<double>(kRows * columns), targets = lab.Noise<double>(y.size());
    const auto losses = lab.Raw<double>(kRows), ones = lab.Raw<double>(kRows);
    for (double& one : ones) one = 1;
    const auto seed = lab.Raw<float>(1);
    seed[0] = 0.5f;
    const auto f = [&] {
      EXPECT_OK(SquaredError(shape, y.data(), targets.data(), losses.data(), lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      return 0.5 * Dot(losses, ones);
    };
    f();
    for (int64_t r = 0; r < kRows; ++r) {
      double sum = 0;
      for (int64_t c = r * columns; c < (r + 1) * columns; ++c) {
        sum += (y[c] - targets[c]) * (y[c] - targets[c]);
      }
      EXPECT_NEAR(losses[r], sum / static_cast<double>(columns), 1e-13);
    }
    const auto dy = lab.Raw<double>(y.size());
    std::copy(y.begin(), y.end(), dy.begin());
    ASSERT_OK(SquaredErrorBackward(shape, dy.data(), targets.data(), seed.data(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    ExpectGradient(y, dy, f);
  }
}

TEST(SquaredErrorTest, RefusesRowsWithGaps) {
  Lab lab;
  EXPECT_THAT(SquaredError({DType::kFloat32, 2, 3, 4}, nullptr, nullptr, nullptr, lab.stream()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 columns, 4 apart")));
}

TEST(ReluTest, KeepsWhatIsPositiveAndNaN) {
  Lab lab;
  const auto x = lab.Raw<double>(5), dy = lab.Raw<double>(5);
  const double values[] = {-1, 0, 2, std::nan(""), std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < 5; ++i) {
    x[i] = values[i];
    dy[i] = 7;
  }
  const MatrixShape shape = {DType::kFloat64, 1, 5};
  ASSERT_OK(Relu(shape, x.data(), x.data(), lab.stream()));
  ASSERT_OK(ReluBackward(shape, x.data(), dy.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_EQ(x[0], 0);
  EXPECT_EQ(x[1], 0);
  EXPECT_EQ(x[2], 2);
  EXPECT_TRUE(std::isnan(x[3]));
  EXPECT_EQ(x[4], values[4]);
  const std::vector<double> expected = {0, 0, 7, 7, 7};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(dy[i], expected[i]) << i;
}

TYPED_TEST(TypesTest, ReluAndSquaredErrorHaveTheSameBitsEverywhere) {
  using T = TypeParam;
  constexpr int64_t kRows = 40, kColumns = 70, kSize = kRows * kColumns;
  SameBits<T>([&](Lab& lab) {
    const auto y = lab.Noise<T>(kSize), result = lab.Raw<T>(2 * kSize);
    const auto targets = lab.Noise<Wide<T>>(kSize), losses = lab.Raw<Wide<T>>(kRows);
    const auto seed = lab.Raw<float>(1);
    seed[0] = 3;
    const MatrixShape shape = {precision::kDType<T>, kRows, kColumns};
    EXPECT_OK(Relu(shape, y.data(), result.data(), lab.stream()));
    EXPECT_OK(SquaredError(shape, y.data(), targets.data(), losses.data(), lab.stream()));
    EXPECT_OK(SquaredErrorBackward(shape, y.data(), targets.data(), seed.data(), lab.stream()));
    EXPECT_OK(ReluBackward(shape, result.data(), y.data(), lab.stream()));
    EXPECT_OK(lab.stream().Copy(result.data() + kSize, y.data(), kSize * sizeof(T)));
    return result;
  });
}

}  // namespace
}  // namespace brigade::nn
