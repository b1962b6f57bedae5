#include "brigade/nn/linear.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "brigade/nn/pointwise.h"
#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

// Of types that are compared, and of gradients: not multiples of anything.
constexpr int64_t kRows = 5, kInputs = 33, kOutputs = 7;

TEST(LinearTest, GradientsAreThoseOfTheProductAndTheBias) {
  if (kOnGpu) GTEST_SKIP() << "products of doubles are for the CPU";
  for (const bool has_bias : {false, true}) {
    SCOPED_TRACE(has_bias);
    Lab lab;
    auto blas = Blas::Create(lab.context(), 0).value();
    const auto x = lab.Noise<double>(kRows * kInputs), bias = lab.Noise<double>(kOutputs);
    const auto weight = lab.Noise<double>(kOutputs * kInputs);
    const auto y = lab.Raw<double>(kRows * kOutputs), dy = lab.Noise<double>(kRows * kOutputs);
    const LinearInput input = {DType::kFloat64, x.data(), weight.data(), kRows, kInputs, kOutputs};
    const auto f = [&] {
      EXPECT_OK(Linear(input, has_bias ? bias.data() : nullptr, y.data(), *blas, lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      return Dot(y, dy);
    };
    // dx is added to what is there, dbias and dweight are not.
    const auto dx = lab.Noise<double>(x.size()), dweight = lab.Raw<double>(weight.size());
    const auto dbias = lab.Raw<double>(kOutputs);
    const std::vector<double> before(dx.begin(), dx.end());
    ASSERT_OK(LinearBackward(input, dy.data(), {dx.data(), true}, {dweight.data()},
                             {has_bias ? dbias.data() : nullptr}, *blas, lab.workspace(),
                             lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (size_t i = 0; i < dx.size(); ++i) dx[i] -= before[i];
    ExpectGradient(x, dx, f);
    ExpectGradient(weight, dweight, f);
    if (has_bias) ExpectGradient(bias, dbias, f);
  }
}

// GPT-2's orientation, several layers side by side, and a residual: as the plain layer, element by
// element.
TEST(LinearTest, OtherLayoutsAreTheSameLayer) {
  if (kOnGpu) GTEST_SKIP() << "products of doubles are for the CPU";
  for (const bool input_major : {false, true}) {
    SCOPED_TRACE(input_major);
    constexpr int64_t kLeading = kOutputs + 4;
    Lab lab;
    auto blas = Blas::Create(lab.context(), 0).value();
    const auto x = lab.Noise<double>(kRows * kInputs), bias = lab.Noise<double>(kOutputs);
    const auto weight = lab.Noise<double>(kOutputs * kInputs);
    const auto turned = lab.Raw<double>(kOutputs * kInputs);
    for (int64_t o = 0; o < kOutputs; ++o) {
      for (int64_t i = 0; i < kInputs; ++i) {
        turned[input_major ? i * kOutputs + o : o * kInputs + i] = weight[o * kInputs + i];
      }
    }
    const LinearInput plain = {DType::kFloat64, x.data(), weight.data(), kRows, kInputs, kOutputs};
    LinearInput other = plain;
    other.weight = turned.data();
    other.input_major = input_major;
    other.y_leading = kLeading;
    other.accumulate = true;
    const auto y = lab.Raw<double>(kRows * kOutputs), beside = lab.Noise<double>(kRows * kLeading);
    const std::vector<double> before(beside.begin(), beside.end());
    ASSERT_OK(Linear(plain, bias.data(), y.data(), *blas, lab.stream()));
    ASSERT_OK(Linear(other, bias.data(), beside.data(), *blas, lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kLeading; ++c) {
        const double added = c < kOutputs ? y[r * kOutputs + c] : 0;
        ASSERT_NEAR(beside[r * kLeading + c], before[static_cast<size_t>(r * kLeading + c)] + added,
                    c < kOutputs ? 1e-13 : 0);
      }
    }
    const auto dy = lab.Raw<double>(kRows * kOutputs);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kOutputs; ++c) dy[r * kOutputs + c] = before[r * kLeading + c];
    }
    std::copy(before.begin(), before.end(), beside.begin());
    const auto dx = lab.Raw<double>(x.size()), dweight = lab.Raw<double>(weight.size());
    const auto dbias = lab.Raw<double>(kOutputs), other_dbias = lab.Raw<double>(kOutputs);
    const auto other_dx = lab.Raw<double>(x.size()), other_dweight = lab.Raw<double>(weight.size());
    ASSERT_OK(LinearBackward(plain, dy.data(), {dx.data()}, {dweight.data()}, {dbias.data()}, *blas,
                             lab.workspace(), lab.stream()));
    ASSERT_OK(LinearBackward(other, beside.data(), {other_dx.data()}, {other_dweight.data()},
                             {other_dbias.data()}, *blas, lab.workspace(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    for (size_t i = 0; i < dx.size(); ++i) ASSERT_NEAR(other_dx[i], dx[i], 1e-13) << i;
    for (size_t i = 0; i < dbias.size(); ++i) ASSERT_EQ(other_dbias[i], dbias[i]) << i;
    for (int64_t o = 0; o < kOutputs; ++o) {
      for (int64_t i = 0; i < kInputs; ++i) {
        ASSERT_NEAR(other_dweight[input_major ? i * kOutputs + o : o * kInputs + i],
                    dweight[o * kInputs + i], 1e-13);
      }
    }
  }
}

TEST(LinearTest, RowsThatOverlapAreRefused) {
  Lab lab;
  const MatrixShape shape = {DType::kFloat32, 2, 5, 4};
  EXPECT_EQ(AddBias(shape, nullptr, nullptr, nullptr, lab.stream()),
            absl::InvalidArgumentError("add_bias: rows of 5 columns are 4 apart"));
  EXPECT_EQ(BiasBackward(shape, nullptr, {}, lab.workspace(), lab.stream()),
            absl::InvalidArgumentError("bias_backward: rows of 5 columns are 4 apart"));
}

// What an embedding's input and a frozen weight save.
TEST(LinearTest, GradientsWithoutDataAreLeftOut) {
  Lab lab;
  auto blas = Blas::Create(lab.context(), 0).value();
  const auto x = lab.Noise<float>(6), weight = lab.Noise<float>(6), dy = lab.Noise<float>(4);
  const auto alone = lab.Raw<float>(6), beside = lab.Raw<float>(6);
  const LinearInput input = {DType::kFloat32, x.data(), weight.data(), 2, 3, 2};
  const auto run = [&](Gradient dx, Gradient dweight) {
    EXPECT_OK(
        LinearBackward(input, dy.data(), dx, dweight, {}, *blas, lab.workspace(), lab.stream()));
  };
  const auto dx = lab.Raw<float>(6), dweight = lab.Raw<float>(6);
  run({dx.data()}, {dweight.data()});
  run({alone.data()}, {});
  run({}, {beside.data()});
  run({}, {});
  ASSERT_OK(lab.stream().Synchronize());
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(alone[i], dx[i]) << i;
    EXPECT_EQ(beside[i], dweight[i]) << i;
  }
  // In the place of x.
  run({x.data()}, {beside.data()});
  ASSERT_OK(lab.stream().Synchronize());
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(x[i], dx[i]) << i;
    EXPECT_EQ(beside[i], dweight[i]) << i;
  }
}

TEST(LinearTest, TheErrorOfAProductNamesItsSize) {
  Lab lab;
  auto blas = Blas::Create(lab.context(), 0).value();
  EXPECT_EQ(
      Linear({DType::kFloat32, nullptr, nullptr, 2, 3, 0}, nullptr, nullptr, *blas, lab.stream()),
      absl::InvalidArgumentError("gemm: n is 0; it must be in 1 to 2147483647"));
}

TYPED_TEST(TypesTest, LinearAndItsGradients) {
  using T = TypeParam;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  auto blas = Blas::Create(lab.context(),
                           Blas::WorkspaceBytes(precision::kDType<T>, kRows, kOutputs, kInputs))
                  .value();
  auto reference_blas = Blas::Create(reference.context(), 0).value();
  const auto x = this->Noise(kRows * kInputs), weight = this->Noise(kOutputs * kInputs);
  const auto bias = this->Noise(kOutputs), dbias = this->Raw(kOutputs);
  const auto y = this->Raw(kRows * kOutputs), dy = this->Noise(kRows * kOutputs);
  const auto dx = this->Raw(kRows * kInputs), dweight = this->Raw(kOutputs * kInputs);
  const auto run = [&](DType dtype, Lab& of, Blas& products, auto part) {
    const LinearInput input = {dtype, part(x), part(weight), kRows, kInputs, kOutputs};
    EXPECT_OK(Linear(input, part(bias), part(y), products, of.stream()));
    EXPECT_OK(LinearBackward(input, part(dy), {part(dx)}, {part(dweight)}, {part(dbias)}, products,
                             of.workspace(), of.stream()));
  };
  run(precision::kDType<T>, lab, *blas, [](const auto& both) { return both.narrow.data(); });
  run(DType::kFloat64, reference, *reference_blas,
      [](const auto& both) { return both.wide.data(); });
  ASSERT_OK(lab.stream().Synchronize());
  ASSERT_OK(reference.stream().Synchronize());
  // The product is rounded, then its sum with the bias.
  const bool is_float = std::is_same_v<T, float>;
  this->ExpectNear(y, is_float ? 16 : 2.1);
  this->ExpectNear(dx, is_float ? 16 : 1.01);
  this->ExpectNear(dweight, is_float ? 16 : 1.01);
  this->ExpectNear(dbias, is_float ? 16 : 1.01);
}

}  // namespace
}  // namespace brigade::nn
