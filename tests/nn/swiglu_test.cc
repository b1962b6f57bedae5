#include "brigade/nn/swiglu.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

TEST(SwigluTest, GradientsAreThoseOfTheFormula) {
  for (const int64_t width : {1, 15, 16, 17, 65}) {
    SCOPED_TRACE(width);
    Lab lab;
    constexpr int64_t kRows = 3;
    const SwigluShape shape = {DType::kFloat64, kRows, width};
    const auto x = lab.Noise<double>(kRows * 2 * width), y = lab.Raw<double>(kRows * width);
    const auto dy = lab.Noise<double>(kRows * width), dx = lab.Noise<double>(x.size());
    for (double& value : x) value *= 4;
    const auto f = [&] {
      EXPECT_OK(Swiglu(shape, x.data(), y.data(), lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      return Dot(y, dy);
    };
    f();
    for (int64_t i = 0; i < kRows * width; ++i) {
      const int64_t at = i / width * 2 * width + i % width;
      ASSERT_NEAR(y[i], x[at] / (1 + std::exp(-x[at])) * x[at + width], 1e-14) << i;
    }
    const std::vector<double> before(dx.begin(), dx.end());
    ASSERT_OK(SwigluBackward(shape, x.data(), dy.data(), {dx.data(), true}, lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (size_t i = 0; i < dx.size(); ++i) dx[i] -= before[i];
    ExpectGradient(x, dx, f);
  }
}

TYPED_TEST(TypesTest, SwigluAndItsGradient) {
  using T = TypeParam;
  constexpr int64_t kRows = 4, kWidth = 97;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  const auto x = this->Noise(kRows * 2 * kWidth), dx = this->Raw(kRows * 2 * kWidth);
  const auto y = this->Raw(kRows * kWidth), dy = this->Noise(kRows * kWidth);
  const auto run = [&](DType dtype, Lab& of, auto part) {
    const SwigluShape shape = {dtype, kRows, kWidth};
    EXPECT_OK(Swiglu(shape, part(x), part(y), of.stream()));
    EXPECT_OK(SwigluBackward(shape, part(x), part(dy), {part(dx)}, of.stream()));
  };
  run(precision::kDType<T>, lab, [](const auto& both) { return both.narrow.data(); });
  run(DType::kFloat64, reference, [](const auto& both) { return both.wide.data(); });
  ASSERT_OK(lab.stream().Synchronize());
  ASSERT_OK(reference.stream().Synchronize());
  const double roundings = std::is_same_v<T, float> ? 8 : 1.01;
  this->ExpectNear(y, roundings);
  this->ExpectNear(dx, roundings);
}

TYPED_TEST(TypesTest, SwigluHasTheSameBitsEverywhereAndInPlace) {
  using T = TypeParam;
  std::vector<T> separate;
  for (const bool in_place : {false, true}) {
    SCOPED_TRACE(in_place);
    constexpr int64_t kRows = 40, kWidth = 70, kSize = kRows * kWidth;
    const auto all = SameBits<T>([&](Lab& lab) {
      const auto x = lab.Noise<T>(2 * kSize), dy = lab.Noise<T>(kSize);
      for (T& value : x) value = T(20 * Widen(value));
      const auto result = lab.Raw<T>(3 * kSize);
      const SwigluShape shape = {precision::kDType<T>, kRows, kWidth};
      EXPECT_OK(Swiglu(shape, x.data(), result.data(), lab.stream()));
      T* const dx = in_place ? x.data() : result.data() + kSize;
      EXPECT_OK(SwigluBackward(shape, x.data(), dy.data(), {dx}, lab.stream()));
      if (in_place) {
        EXPECT_OK(lab.stream().Copy(result.data() + kSize, dx, 2 * kSize * sizeof(T)));
      }
      return result;
    });
    if (!in_place) separate = all;
    EXPECT_EQ(std::memcmp(all.data(), separate.data(), all.size() * sizeof(T)), 0);
  }
}

// What overflowed must reach the gradients, where the loss scaler sees it.
TYPED_TEST(TypesTest, SwigluOfWhatIsNotFiniteIsNotFinite) {
  using T = TypeParam;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    SCOPED_TRACE(bad);
    for (const int place : {0, 1}) {
      Lab lab;
      const auto x = lab.Noise<T>(2), y = lab.Raw<T>(1), dy = lab.Noise<T>(1), dx = lab.Raw<T>(2);
      x[place] = T(bad);
      const SwigluShape shape = {precision::kDType<T>, 1, 1};
      ASSERT_OK(Swiglu(shape, x.data(), y.data(), lab.stream()));
      ASSERT_OK(SwigluBackward(shape, x.data(), dy.data(), {dx.data()}, lab.stream()));
      ASSERT_OK(lab.stream().Synchronize());
      EXPECT_FALSE(std::isfinite(Widen(y[0])));
      EXPECT_FALSE(std::isfinite(Widen(dx[0])) && std::isfinite(Widen(dx[1])));
    }
  }
}

}  // namespace
}  // namespace brigade::nn
