#include "brigade/nn/rms_norm.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

TEST(RmsNormTest, GradientsAreThoseOfTheFormula) {
  // Around the 16 partial sums of a row and the 64 columns of a block.
  for (const int64_t width : {1, 5, 15, 16, 17, 63, 64, 65, 130}) {
    SCOPED_TRACE(width);
    Lab lab;
    constexpr int64_t kRows = 3;
    const auto x = lab.Noise<double>(kRows * width), dy = lab.Noise<double>(kRows * width);
    const auto weight = lab.Noise<double>(width), y = lab.Raw<double>(kRows * width);
    // So large an epsilon that its place matters.
    const RmsNormInput input = {
        DType::kFloat64, x.data(), weight.data(), lab.Raw<double>(kRows).data(), kRows, width, 0.1};
    const auto f = [&] {
      EXPECT_OK(RmsNorm(input, y.data(), lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      return Dot(y, dy);
    };
    f();
    for (int64_t r = 0; r < kRows; ++r) {
      double squares = 0;
      for (int64_t c = 0; c < width; ++c) squares += x[r * width + c] * x[r * width + c];
      const double rms = std::sqrt(squares / static_cast<double>(width) + 0.1);
      for (int64_t c = 0; c < width; ++c) {
        ASSERT_NEAR(y[r * width + c], x[r * width + c] / rms * weight[c], 1e-14) << r << " " << c;
      }
    }
    const auto dx = lab.Noise<double>(kRows * width), dweight = lab.Noise<double>(width);
    const std::vector<double> dx_before(dx.begin(), dx.end());
    // Once for all, and once more in addition.
    ASSERT_OK(RmsNormBackward(input, dy.data(), {dx.data(), true}, {dweight.data()},
                              lab.workspace(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (size_t i = 0; i < dx.size(); ++i) dx[i] -= dx_before[i];
    ExpectGradient(x, dx, f);
    ExpectGradient(weight, dweight, f);
    const std::vector<double> once(dweight.begin(), dweight.end());
    ASSERT_OK(RmsNormBackward(input, dy.data(), {dx.data()}, {dweight.data(), true},
                              lab.workspace(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(dweight[i], 2 * once[i]) << i;
    ExpectGradient(x, dx, f);
  }
}

TEST(RmsNormTest, AnEpsilonThatIsNotPositiveIsRefused) {
  Lab lab;
  for (const double epsilon : {0.0, -1e-5, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(
        RmsNorm({DType::kFloat32, nullptr, nullptr, nullptr, 0, 8, epsilon}, nullptr, lab.stream()),
        absl::InvalidArgumentError(
            absl::StrCat("rms_norm: epsilon is ", epsilon, "; it must be positive and finite")));
  }
}

TEST(RmsNormTest, AWorkspaceThatIsTooSmallIsRefused) {
  Lab lab;
  EXPECT_EQ(RmsNormBackward({DType::kFloat64, nullptr, nullptr, nullptr, 1000, 40'000}, nullptr, {},
                            {}, lab.workspace(), lab.stream()),
            absl::InvalidArgumentError(
                "rms_norm_backward: the workspace has room for 1665024 bytes of sums; it must be "
                "for 5120000"));
}

TYPED_TEST(TypesTest, RmsNormAndItsGradients) {
  using T = TypeParam;
  constexpr int64_t kRows = 4, kWidth = 97;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  const auto x = this->Noise(kRows * kWidth), dy = this->Noise(kRows * kWidth);
  const auto weight = this->Noise(kWidth), dweight = this->Raw(kWidth);
  const auto y = this->Raw(kRows * kWidth), dx = this->Raw(kRows * kWidth);
  const auto run = [&](DType dtype, Lab& of, void* inverse_rms, auto part) {
    const RmsNormInput input = {dtype, part(x), part(weight), inverse_rms, kRows, kWidth};
    EXPECT_OK(RmsNorm(input, part(y), of.stream()));
    EXPECT_OK(
        RmsNormBackward(input, part(dy), {part(dx)}, {part(dweight)}, of.workspace(), of.stream()));
  };
  run(precision::kDType<T>, lab, lab.template Raw<float>(kRows).data(),
      [](const auto& both) { return both.narrow.data(); });
  run(DType::kFloat64, reference, reference.template Raw<double>(kRows).data(),
      [](const auto& both) { return both.wide.data(); });
  ASSERT_OK(lab.stream().Synchronize());
  ASSERT_OK(reference.stream().Synchronize());
  // One rounding; float's own sums are of up to 97 terms.
  const double roundings = std::is_same_v<T, float> ? 16 : 1.01;
  this->ExpectNear(y, roundings);
  this->ExpectNear(dx, roundings);
  this->ExpectNear(dweight, roundings);
}

// Sums over rows are the same on every device, given what the forward pass left.
TYPED_TEST(TypesTest, TheWeightsOfRmsNormHaveTheSameGradientOnEveryDevice) {
  using T = TypeParam;
  for (const int64_t rows : {0, 1, 65, 1000}) {
    SCOPED_TRACE(rows);
    SameBits<T>([&](Lab& lab) {
      constexpr int64_t kWidth = 31;
      const auto x = lab.Noise<T>(rows * kWidth), dy = lab.Noise<T>(rows * kWidth);
      const auto weight = lab.Noise<T>(kWidth), dweight = lab.Noise<T>(kWidth);
      const auto inverse = lab.Noise<float>(rows);
      EXPECT_OK(RmsNormBackward(
          {precision::kDType<T>, x.data(), weight.data(), inverse.data(), rows, kWidth}, dy.data(),
          {lab.Raw<T>(rows * kWidth).data()}, {dweight.data(), true}, lab.workspace(),
          lab.stream()));
      return dweight;
    });
  }
}

}  // namespace
}  // namespace brigade::nn
