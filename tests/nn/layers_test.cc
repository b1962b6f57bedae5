// Every layer's gradient against finite differences in double.

#include <cstdint>
#include <vector>

#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/pointwise.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

constexpr DType kDouble = DType::kFloat64;

// Widths around the 16 partial sums of a row and the 64 columns of a block.
const std::vector<int64_t> kWidths = {1, 5, 15, 16, 17, 63, 64, 65, 130};

Gradient To(absl::Span<double> data, bool accumulate = false) { return {data.data(), accumulate}; }

TEST(LayersTest, LayerNorm) {
  for (const int64_t width : kWidths) {
    SCOPED_TRACE(width);
    Lab lab;
    constexpr int64_t kRows = 3;
    const auto x = lab.Noise<double>(kRows * width), dy = lab.Noise<double>(kRows * width);
    const auto weight = lab.Noise<double>(width), bias = lab.Noise<double>(width);
    const auto y = lab.Raw<double>(kRows * width);
    const LayerNormInput input = {kDouble,
                                  x.data(),
                                  weight.data(),
                                  lab.Raw<double>(kRows).data(),
                                  lab.Raw<double>(kRows).data(),
                                  kRows,
                                  width};
    const auto f = [&] {
      EXPECT_OK(LayerNorm(input, bias.data(), y.data(), lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      return Dot(y, dy);
    };
    f();
    const auto dx = lab.Raw<double>(kRows * width);
    const auto dweight = lab.Raw<double>(width), dbias = lab.Raw<double>(width);
    ASSERT_OK(LayerNormBackward(input, dy.data(), To(dx), To(dweight), To(dbias), lab.workspace(),
                                lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    ExpectGradient(x, dx, f);
    ExpectGradient(weight, dweight, f);
    ExpectGradient(bias, dbias, f);
  }
}

TEST(LayersTest, BackwardAddsWhereAskedTo) {
  Lab lab;
  constexpr int64_t kRows = 3, kWidth = 70;
  const auto x = lab.Noise<double>(kRows * kWidth), dy = lab.Noise<double>(kRows * kWidth);
  const auto weight = lab.Noise<double>(kWidth), y = lab.Raw<double>(kRows * kWidth);
  const LayerNormInput input = {kDouble,
                                x.data(),
                                weight.data(),
                                lab.Raw<double>(kRows).data(),
                                lab.Raw<double>(kRows).data(),
                                kRows,
                                kWidth};
  ASSERT_OK(LayerNorm(input, weight.data(), y.data(), lab.stream()));
  const int64_t sizes[] = {kRows * kWidth, kWidth, kWidth};
  std::vector<absl::Span<double>> fresh, added;
  std::vector<std::vector<double>> before;
  for (const int64_t size : sizes) {
    fresh.push_back(lab.Raw<double>(size));
    added.push_back(lab.Noise<double>(size));
    before.emplace_back(added.back().begin(), added.back().end());
  }
  ASSERT_OK(LayerNormBackward(input, dy.data(), To(fresh[0]), To(fresh[1]), To(fresh[2]),
                              lab.workspace(), lab.stream()));
  ASSERT_OK(LayerNormBackward(input, dy.data(), To(added[0], true), To(added[1], true),
                              To(added[2], true), lab.workspace(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (size_t a = 0; a < fresh.size(); ++a) {
    for (size_t i = 0; i < fresh[a].size(); ++i) {
      ASSERT_EQ(added[a][i], before[a][i] + fresh[a][i]) << a << " " << i;
    }
  }
}

TEST(LayersTest, BiasResidualAndGelu) {
  for (const int64_t width : kWidths) {
    SCOPED_TRACE(width);
    Lab lab;
    constexpr int64_t kRows = 5;
    const MatrixShape shape = {kDouble, kRows, width};
    const auto x = lab.Noise<double>(kRows * width), bias = lab.Noise<double>(width);
    const auto residual = lab.Noise<double>(kRows * width);
    const auto weights = lab.Noise<double>(kRows * width);
    const auto sum = lab.Raw<double>(kRows * width), y = lab.Raw<double>(kRows * width);
    const auto f = [&] {  // gelu(x + bias + residual + bias)
      EXPECT_OK(lab.stream().Copy(sum.data(), x.data(), kRows * width * 8));
      EXPECT_OK(AddBias(shape, sum.data(), bias.data(), residual.data(), lab.stream()));
      EXPECT_OK(AddBiasGelu(shape, sum.data(), bias.data(), y.data(), lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      return Dot(y, weights);
    };
    f();
    const auto dsum = lab.Raw<double>(kRows * width), dbias = lab.Raw<double>(width);
    std::copy(weights.begin(), weights.end(), dsum.begin());
    ASSERT_OK(GeluBackward(shape, sum.data(), dsum.data(), lab.stream()));
    ASSERT_OK(BiasBackward(shape, dsum.data(), To(dbias), lab.workspace(), lab.stream()));
    ASSERT_OK(BiasBackward(shape, dsum.data(), To(dbias, true), lab.workspace(),
                           lab.stream()));  // it is added twice
    ASSERT_OK(lab.stream().Synchronize());
    ExpectGradient(x, dsum, f);
    ExpectGradient(residual, dsum, f);
    ExpectGradient(bias, dbias, f);
  }
}

TEST(LayersTest, BiasWithoutResidual) {
  Lab lab;
  const auto x = lab.Noise<double>(6), bias = lab.Noise<double>(3);
  const std::vector<double> before(x.begin(), x.end());
  ASSERT_OK(AddBias({kDouble, 2, 3}, x.data(), bias.data(), nullptr, lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(x[i], before[i] + bias[i % 3]);
}

TEST(LayersTest, Embedding) {
  for (const int64_t width : {int64_t{1}, int64_t{64}, int64_t{67}}) {
    SCOPED_TRACE(width);
    Lab lab;
    const Texts texts = {lab.Bytes(3 * 5, 4).data(), 3, 4};  // few letters: some come several times
    const auto tokens = lab.Noise<double>(kVocabulary * width);
    const auto positions = lab.Noise<double>(texts.context * width);
    const auto x = lab.Raw<double>(texts.rows() * width);
    const auto dx = lab.Noise<double>(texts.rows() * width);
    const auto f = [&] {
      EXPECT_OK(Embedding(texts, kDouble, width, tokens.data(), positions.data(), x.data(),
                          lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
      return Dot(x, dx);
    };
    const auto dtokens = lab.Raw<double>(kVocabulary * width);
    const auto dpositions = lab.Raw<double>(texts.context * width);
    ASSERT_OK(EmbeddingBackward(texts, kDouble, width, dx.data(), To(dtokens), To(dpositions),
                                lab.workspace(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    // Letters that occur, and one that does not.
    ExpectGradient(tokens.subspan(0, 5 * width), dtokens.subspan(0, 5 * width), f);
    ExpectGradient(positions, dpositions, f);
    for (size_t i = 5 * width; i < dtokens.size(); ++i) ASSERT_EQ(dtokens[i], 0);
  }
}

TEST(LayersTest, CrossEntropy) {
  Lab lab;
  const Texts texts = {lab.Bytes(2 * 4).data(), 2, 3};
  const auto logits = lab.Noise<double>(texts.rows() * kVocabulary);
  const auto losses = lab.Raw<double>(texts.rows());
  const auto mean = lab.Raw<float>(1), seed = lab.Raw<float>(1);
  seed[0] = 8;
  const auto f = [&] {
    EXPECT_OK(CrossEntropy(texts, kDouble, logits.data(), losses.data(), lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return 8 * sum / static_cast<double>(losses.size());
  };
  const double value = f();
  ASSERT_OK(MeanOfLosses(kDouble, losses.data(), texts.rows(), lab.Raw<double>(1).data(),
                         mean.data(), lab.stream()));
  const auto gradient = lab.Raw<double>(logits.size());
  std::copy(logits.begin(), logits.end(), gradient.begin());
  ASSERT_OK(CrossEntropyBackward(texts, kDouble, gradient.data(), seed.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_FLOAT_EQ(mean[0], static_cast<float>(value / 8));
  ExpectGradient(logits, gradient, f);
}

TEST(LayersTest, CrossEntropyOfEqualLogitsIsLn256) {
  Lab lab;
  const Texts texts = {lab.Bytes(3).data(), 1, 2};
  const auto logits = lab.Raw<float>(2 * kVocabulary);
  std::fill(logits.begin(), logits.end(), 100.0f);
  const auto losses = lab.Raw<float>(2);
  ASSERT_OK(CrossEntropy(texts, DType::kFloat32, logits.data(), losses.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_NEAR(losses[0], std::log(256.0), 1e-5);
}

// The spacing of floats is 2^-9 at 16384: a loss must not be the difference of two such numbers.
TEST(LayersTest, CrossEntropyOfLargeLogitsLosesNoDigits) {
  Lab lab;
  const auto ids = lab.Raw<int32_t>(3), last = lab.Raw<int32_t>(kVocabulary + 1);
  std::fill(ids.begin(), ids.end(), 0);
  const auto pairs = lab.Raw<float>(4), losses = lab.Raw<float>(2);
  pairs[0] = pairs[1] = 16384;
  pairs[2] = 30000;
  pairs[3] = 29990;
  ASSERT_OK(CrossEntropy(TokenIds(ids.data(), 1, 2, 2), DType::kFloat32, pairs.data(),
                         losses.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  EXPECT_NEAR(losses[0], std::log(2.0), 1e-7);
  EXPECT_NEAR(losses[1], std::log1p(std::exp(-10.0)), 1e-7);

  // A row for every target.
  const auto logits = lab.Noise<float>(kVocabulary * kVocabulary);
  const auto of_rows = lab.Raw<float>(kVocabulary);
  for (float& logit : logits) logit = 10000 + 4 * logit;
  for (int32_t i = 0; i <= kVocabulary; ++i) last[i] = i == 0 ? 0 : i - 1;
  ASSERT_OK(CrossEntropy(TokenIds(last.data(), 1, kVocabulary, kVocabulary), DType::kFloat32,
                         logits.data(), of_rows.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t r = 0; r < kVocabulary; ++r) {
    const float* const row = logits.data() + r * kVocabulary;
    double sum = 0;
    for (int64_t c = 0; c < kVocabulary; ++c) sum += std::exp(static_cast<double>(row[c]) - 10000);
    EXPECT_NEAR(of_rows[r], std::log(sum) - (static_cast<double>(row[r]) - 10000), 4e-6) << r;
  }
}

TEST(LayersTest, OtherTypesAreRefused) {
  Lab lab;
  EXPECT_EQ(BiasBackward({DType::kInt32, 1, 1}, nullptr, {}, lab.workspace(), lab.stream()),
            absl::InvalidArgumentError("bias_backward: dtype is int32; it must be fp32, "
                                       "fp16, bf16 or fp64"));
}

}  // namespace
}  // namespace brigade::nn
