// The types that train against double on the CPU: what a layer gives differs by its rounding and no
// more.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/pointwise.h"
#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

TYPED_TEST(TypesTest, LayerNorm) {
  using T = TypeParam;
  constexpr int64_t kRows = 4, kWidth = 96;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  const auto x = this->Noise(kRows * kWidth), dy = this->Noise(kRows * kWidth);
  const auto weight = this->Noise(kWidth), bias = this->Noise(kWidth);
  const auto y = this->Raw(kRows * kWidth), dx = this->Raw(kRows * kWidth);
  const auto dweight = this->Raw(kWidth), dbias = this->Raw(kWidth);
  const LayerNormInput narrow = {precision::kDType<T>,
                                 x.narrow.data(),
                                 weight.narrow.data(),
                                 lab.template Raw<float>(kRows).data(),
                                 lab.template Raw<float>(kRows).data(),
                                 kRows,
                                 kWidth};
  const LayerNormInput wide = {DType::kFloat64,
                               x.wide.data(),
                               weight.wide.data(),
                               reference.template Raw<double>(kRows).data(),
                               reference.template Raw<double>(kRows).data(),
                               kRows,
                               kWidth};
  ASSERT_OK(LayerNorm(narrow, bias.narrow.data(), y.narrow.data(), lab.stream()));
  ASSERT_OK(LayerNorm(wide, bias.wide.data(), y.wide.data(), reference.stream()));
  ASSERT_OK(LayerNormBackward(narrow, dy.narrow.data(), {dx.narrow.data()}, {dweight.narrow.data()},
                              {dbias.narrow.data()}, lab.workspace(), lab.stream()));
  ASSERT_OK(LayerNormBackward(wide, dy.wide.data(), {dx.wide.data()}, {dweight.wide.data()},
                              {dbias.wide.data()}, reference.workspace(), reference.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ASSERT_OK(reference.stream().Synchronize());
  // One rounding; float's own sums are of up to 96 terms.
  const double roundings = std::is_same_v<T, float> ? 16 : 1.01;
  this->ExpectNear(y, roundings);
  this->ExpectNear(dx, roundings);
  this->ExpectNear(dweight, roundings);
  this->ExpectNear(dbias, roundings);
}

TYPED_TEST(TypesTest, GeluAndItsGradient) {
  using T = TypeParam;
  constexpr int64_t kRows = 3, kWidth = 80;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  const auto x = this->Noise(kRows * kWidth), bias = this->Noise(kWidth),
             dy = this->Noise(kRows * kWidth);
  const auto y = this->Raw(kRows * kWidth);
  const MatrixShape narrow = {precision::kDType<T>, kRows, kWidth};
  const MatrixShape wide = {DType::kFloat64, kRows, kWidth};
  ASSERT_OK(
      AddBiasGelu(narrow, x.narrow.data(), bias.narrow.data(), y.narrow.data(), lab.stream()));
  ASSERT_OK(AddBiasGelu(wide, x.wide.data(), bias.wide.data(), y.wide.data(), reference.stream()));
  ASSERT_OK(GeluBackward(narrow, x.narrow.data(), dy.narrow.data(), lab.stream()));
  ASSERT_OK(GeluBackward(wide, x.wide.data(), dy.wide.data(), reference.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ASSERT_OK(reference.stream().Synchronize());
  // x is rounded, then y; the slopes are at most 1.13.
  this->ExpectNear(y, std::is_same_v<T, float> ? 8 : 2.2);
  this->ExpectNear(dy, std::is_same_v<T, float> ? 8 : 2.2);
}

TYPED_TEST(TypesTest, BiasesAndTheirGradients) {
  using T = TypeParam;
  constexpr int64_t kRows = 40, kWidth = 70;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  const MatrixShape narrow = {precision::kDType<T>, kRows, kWidth};
  const MatrixShape wide = {DType::kFloat64, kRows, kWidth};
  const auto x = this->Noise(kRows * kWidth), residual = this->Noise(kRows * kWidth);
  const auto bias = this->Noise(kWidth), dbias = this->Noise(kWidth), fresh = this->Raw(kWidth);
  const auto dy = this->Noise(kRows * kWidth);
  ASSERT_OK(
      AddBias(narrow, x.narrow.data(), bias.narrow.data(), residual.narrow.data(), lab.stream()));
  ASSERT_OK(
      AddBias(wide, x.wide.data(), bias.wide.data(), residual.wide.data(), reference.stream()));
  ASSERT_OK(
      BiasBackward(narrow, dy.narrow.data(), {fresh.narrow.data()}, lab.workspace(), lab.stream()));
  ASSERT_OK(BiasBackward(wide, dy.wide.data(), {fresh.wide.data()}, reference.workspace(),
                         reference.stream()));
  ASSERT_OK(BiasBackward(narrow, dy.narrow.data(), {dbias.narrow.data(), true}, lab.workspace(),
                         lab.stream()));
  ASSERT_OK(BiasBackward(wide, dy.wide.data(), {dbias.wide.data(), true}, reference.workspace(),
                         reference.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ASSERT_OK(reference.stream().Synchronize());
  this->ExpectNear(x, std::is_same_v<T, float> ? 2 : 1.01);
  this->ExpectNear(fresh, std::is_same_v<T, float> ? 16 : 1.01);
  this->ExpectNear(dbias, std::is_same_v<T, float> ? 16 : 1.01);
}

TYPED_TEST(TypesTest, EmbeddingAndItsGradients) {
  using T = TypeParam;
  constexpr int64_t kWidth = 70;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  const Texts texts = {lab.Bytes(4 * 13, 3).data(), 4, 12};
  const auto tokens = this->Noise(kVocabulary * kWidth), positions = this->Noise(12 * kWidth);
  const auto dtokens = this->Noise(kVocabulary * kWidth), dpositions = this->Raw(12 * kWidth);
  const auto x = this->Raw(texts.rows() * kWidth), dx = this->Noise(texts.rows() * kWidth);
  const auto run = [&](DType dtype, Lab& of, auto part) {
    device::Stream& stream = of.stream();
    EXPECT_OK(Embedding(texts, dtype, kWidth, part(tokens), part(positions), part(x), stream));
    EXPECT_OK(EmbeddingBackward(texts, dtype, kWidth, part(dx), {part(dtokens), true},
                                {part(dpositions)}, of.workspace(), stream));
  };
  run(precision::kDType<T>, lab, [](const auto& both) { return both.narrow.data(); });
  run(DType::kFloat64, reference, [](const auto& both) { return both.wide.data(); });
  ASSERT_OK(lab.stream().Synchronize());
  ASSERT_OK(reference.stream().Synchronize());
  this->ExpectNear(x, 1.01);
  this->ExpectNear(dtokens, std::is_same_v<T, float> ? 16 : 1.01);
  this->ExpectNear(dpositions, std::is_same_v<T, float> ? 4 : 1.01);
}

// Logits are changed in place; losses of 16-bit types are float.
TYPED_TEST(TypesTest, CrossEntropyAndItsGradient) {
  using T = TypeParam;
  auto& lab = this->lab_;
  auto& reference = this->reference_;
  const Texts texts = {lab.Bytes(2 * 6).data(), 2, 5};
  const int64_t rows = texts.rows();
  const auto logits = this->Noise(rows * kVocabulary);
  for (int64_t i = 0; i < rows * kVocabulary; ++i) {
    logits.narrow[i] = T(8 * Widen(logits.narrow[i]));
    logits.wide[i] = Widen(logits.narrow[i]);
  }
  const auto narrow = lab.template Raw<float>(rows), seed = lab.template Raw<float>(1);
  const auto wide = reference.template Raw<double>(rows);
  seed[0] = 1024;
  ASSERT_OK(
      CrossEntropy(texts, precision::kDType<T>, logits.narrow.data(), narrow.data(), lab.stream()));
  ASSERT_OK(
      CrossEntropy(texts, DType::kFloat64, logits.wide.data(), wide.data(), reference.stream()));
  ASSERT_OK(CrossEntropyBackward(texts, precision::kDType<T>, logits.narrow.data(), seed.data(),
                                 lab.stream()));
  ASSERT_OK(CrossEntropyBackward(texts, DType::kFloat64, logits.wide.data(), seed.data(),
                                 reference.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ASSERT_OK(reference.stream().Synchronize());
  for (int64_t r = 0; r < rows; ++r) EXPECT_NEAR(narrow[r], wide[r], 1e-5);
  this->ExpectNear(logits, std::is_same_v<T, float> ? 16 : 1.01);
}

// What overflowed must reach the gradients, where the loss scaler sees it.
TYPED_TEST(TypesTest, ARowThatIsNotFiniteStaysSo) {
  using T = TypeParam;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    SCOPED_TRACE(bad);
    Lab lab;
    const Texts texts = {lab.Bytes(2 * 3).data(), 2, 2};
    const auto logits = lab.Noise<T>(4 * kVocabulary);
    logits[2 * kVocabulary + 77] = T(bad);
    const auto losses = lab.Raw<float>(4), seed = lab.Raw<float>(1);
    seed[0] = 1;
    ASSERT_OK(
        CrossEntropy(texts, precision::kDType<T>, logits.data(), losses.data(), lab.stream()));
    ASSERT_OK(CrossEntropyBackward(texts, precision::kDType<T>, logits.data(), seed.data(),
                                   lab.stream()));
    const auto x = lab.Noise<T>(6), bias = lab.Noise<T>(3), y = lab.Raw<T>(6);
    x[4] = T(std::nanf(""));
    ASSERT_OK(
        AddBiasGelu({precision::kDType<T>, 2, 3}, x.data(), bias.data(), y.data(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    const auto finite = [](T value) { return std::isfinite(static_cast<float>(Widen(value))); };
    for (int64_t r = 0; r < 4; ++r) {
      EXPECT_EQ(std::isfinite(losses[r]), r != 2) << r;
      for (int64_t c = 0; c < kVocabulary; ++c) {
        ASSERT_EQ(finite(logits[r * kVocabulary + c]), r != 2) << r << " " << c;
      }
    }
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(finite(y[i]), i != 4) << i;
  }
}

TEST(FunctionsTest, ExpIsGoodToTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (int64_t i = -86000; i <= 87000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(Exp(x)) - exact) / exact);
  }
  EXPECT_LE(worst, 0x1p-22);
}

TEST(FunctionsTest, ExpStaysFiniteAndPositive) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_GT(Exp(-kInfinity), 0.0f);
  EXPECT_LT(Exp(-kInfinity), 1e-37f);
  EXPECT_GT(Exp(kInfinity), 1e38f);
  EXPECT_LT(Exp(kInfinity), kInfinity);
}

TEST(FunctionsTest, ExpKeepsEveryNaN) {
  for (const uint32_t bits : {0x7fc00000u, 0x7fffffffu, 0x7fc00001u, 0xffc00000u, 0x7f800001u}) {
    EXPECT_TRUE(std::isnan(Exp(__builtin_bit_cast(float, bits)))) << bits;
  }
  EXPECT_TRUE(std::isnan(Exp(std::nan(""))));
}

}  // namespace
}  // namespace brigade::nn
