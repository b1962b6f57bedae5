// Embeddings and the cross entropy over vocabularies of any size.

#include "brigade/nn/token_ids.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

constexpr int64_t kGpt2Vocabulary = 50257;

// Half of them the first and the last ids, some of which are then many.
absl::Span<int32_t> Ids(Lab& lab, int64_t size, int64_t vocabulary) {
  const absl::Span<int32_t> ids = lab.Raw<int32_t>(size);
  std::mt19937 random(5);
  for (int32_t& id : ids) {
    const auto any = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
    const auto last = static_cast<int32_t>(vocabulary - 1);
    const int32_t few[] = {any, any, 0, last};
    id = few[random() % 4];
  }
  return ids;
}

// Around the bytes of an id, by each of which rows are sorted, and what language models have.
class VocabularyTest : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, VocabularyTest,
                         ::testing::Values(1, 3, 255, 256, 257, 1000, kGpt2Vocabulary, 65'535,
                                           65'536));

TEST_P(VocabularyTest, AnEmbeddingsGradientIsTheSumOfItsRowsWithTheSameBitsOnEveryDevice) {
  constexpr int64_t kBatch = 2, kContext = 350, kRows = kBatch * kContext, kWidth = 2;
  const int64_t vocabulary = GetParam();
  std::vector<double> wanted(static_cast<size_t>(vocabulary * kWidth));
  const std::vector<float> result = SameBits<float>([&](Lab& lab) {
    const Workspace workspace =
        Workspace::Create(lab.context(), DType::kFloat32,
                          {.rows = kRows, .width = kWidth, .vocabulary = vocabulary})
            .value();
    const TokenIds ids = {Ids(lab, kBatch * (kContext + 1), vocabulary).data(), kBatch, kContext,
                          vocabulary};
    const auto dx = lab.Noise<float>(kRows * kWidth);
    std::fill(wanted.begin(), wanted.end(), 0.0);
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      wanted[static_cast<size_t>(ids.token(i / kWidth) * kWidth + i % kWidth)] +=
          static_cast<double>(dx[i]);
    }
    const auto dtokens = lab.Raw<float>(vocabulary * kWidth);
    EXPECT_OK(EmbeddingBackward(ids, DType::kFloat32, kWidth, dx.data(), {dtokens.data()}, {},
                                workspace, lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    return dtokens;
  });
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(result[i], wanted[i], 1e-4) << i;
}

TEST_P(VocabularyTest, TheCrossEntropyIsThatOfTheFormula) {
  constexpr int64_t kRows = 3;
  const int64_t vocabulary = GetParam();
  Lab lab;
  const TokenIds ids = {Ids(lab, kRows + 1, vocabulary).data(), 1, kRows, vocabulary};
  const auto logits = lab.Noise<float>(kRows * vocabulary), losses = lab.Raw<float>(kRows);
  const auto seed = lab.Raw<float>(1);
  seed[0] = 1024;
  const std::vector<float> before(logits.begin(), logits.end());
  ASSERT_OK(CrossEntropy(ids, DType::kFloat32, logits.data(), losses.data(), lab.stream()));
  ASSERT_OK(CrossEntropyBackward(ids, DType::kFloat32, logits.data(), seed.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t r = 0; r < kRows; ++r) {
    const float* const row = before.data() + r * vocabulary;
    double sum = 0;
    for (int64_t c = 0; c < vocabulary; ++c) sum += std::exp(static_cast<double>(row[c]));
    EXPECT_NEAR(losses[r], std::log(sum) - static_cast<double>(row[ids.target(r)]), 2e-5) << r;
    for (int64_t c = 0; c < vocabulary; ++c) {
      const double probability = std::exp(static_cast<double>(row[c])) / sum;
      const double wanted = (probability - (c == ids.target(r) ? 1.0 : 0.0)) * 1024 / kRows;
      ASSERT_NEAR(logits[r * vocabulary + c], wanted, 1e-6 + 4e-6 * std::abs(wanted)) << r << c;
    }
  }
}

TYPED_TEST(TypesTest, BytesAndIdsGiveTheSameBits) {
  using T = TypeParam;
  constexpr int64_t kBatch = 3, kContext = 40, kRows = kBatch * kContext, kWidth = 33;
  constexpr DType kType = precision::kDType<T>;
  Lab lab;
  const auto bytes = lab.Bytes(kBatch * (kContext + 1), 20);
  const auto wide = lab.Raw<int32_t>(kBatch * (kContext + 1));
  std::copy(bytes.begin(), bytes.end(), wide.begin());
  const TokenIds of_bytes = Texts{bytes.data(), kBatch, kContext};
  const TokenIds of_ids = {wide.data(), kBatch, kContext, kVocabulary};
  const auto tokens = lab.Noise<T>(kVocabulary * kWidth);
  const auto positions = lab.Noise<T>(kContext * kWidth);
  const auto logits = lab.Noise<T>(kRows * kVocabulary), dx = lab.Noise<T>(kRows * kWidth);
  const auto seed = lab.Raw<float>(1);
  seed[0] = 8;
  const auto run = [&](const TokenIds& ids) {
    const auto x = lab.Raw<T>(kRows * kWidth), gradient = lab.Raw<T>(kRows * kVocabulary);
    const auto dtokens = lab.Raw<T>(kVocabulary * kWidth);
    const auto dpositions = lab.Raw<T>(kContext * kWidth);
    const auto losses = lab.Raw<float>(kRows);
    device::Stream& stream = lab.stream();
    EXPECT_OK(Embedding(ids, kType, kWidth, tokens.data(), positions.data(), x.data(), stream));
    EXPECT_OK(EmbeddingBackward(ids, kType, kWidth, dx.data(), {dtokens.data()},
                                {dpositions.data()}, lab.workspace(), stream));
    EXPECT_OK(stream.Copy(gradient.data(), logits.data(), kRows * kVocabulary * sizeof(T)));
    EXPECT_OK(CrossEntropy(ids, kType, gradient.data(), losses.data(), stream));
    EXPECT_OK(CrossEntropyBackward(ids, kType, gradient.data(), seed.data(), stream));
    EXPECT_OK(stream.Synchronize());
    std::vector<float> all(losses.begin(), losses.end());
    for (const auto& array : {x, gradient, dtokens, dpositions}) {
      for (const T value : array) all.push_back(Widen(value));
    }
    return all;
  };
  const std::vector<float> first = run(of_bytes), second = run(of_ids);
  ASSERT_EQ(first.size(), second.size());
  EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
}

TEST(TokenIdsTest, GradientsAreThoseOfTheFormulasWithoutPositions) {
  Lab lab;
  constexpr int64_t kVocabularySize = 5, kWidth = 3, kRows = 6;
  const TokenIds ids = {Ids(lab, 2 * 4, kVocabularySize).data(), 2, 3, kVocabularySize};
  const auto tokens = lab.Noise<double>(kVocabularySize * kWidth);
  const auto x = lab.Raw<double>(kRows * kWidth), dx = lab.Noise<double>(kRows * kWidth);
  const auto embed = [&] {
    EXPECT_OK(
        Embedding(ids, DType::kFloat64, kWidth, tokens.data(), nullptr, x.data(), lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    return Dot(x, dx);
  };
  const auto dtokens = lab.Raw<double>(kVocabularySize * kWidth);
  ASSERT_OK(EmbeddingBackward(ids, DType::kFloat64, kWidth, dx.data(), {dtokens.data()}, {},
                              lab.workspace(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ExpectGradient(tokens, dtokens, embed);

  const auto logits = lab.Noise<double>(kRows * kVocabularySize), losses = lab.Raw<double>(kRows);
  const auto gradient = lab.Raw<double>(logits.size());
  const auto seed = lab.Raw<float>(1);
  seed[0] = 8;
  std::copy(logits.begin(), logits.end(), gradient.begin());
  const auto loss = [&] {
    EXPECT_OK(CrossEntropy(ids, DType::kFloat64, logits.data(), losses.data(), lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    double sum = 0;
    for (const double of_row : losses) sum += of_row;
    return 8 * sum / kRows;
  };
  ASSERT_OK(CrossEntropyBackward(ids, DType::kFloat64, gradient.data(), seed.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ExpectGradient(logits, gradient, loss);
}

// The host cannot see it: it must neither read beyond a table nor pass in silence.
TYPED_TEST(TypesTest, AnIdThatIsNoneOfTheVocabularyMakesItsRowsNaN) {
  using T = TypeParam;
  constexpr DType kType = precision::kDType<T>;
  constexpr int64_t kSize = 300, kWidth = 3, kRows = 4, kBad = 2;
  for (const int32_t bad :
       {-1, 300, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    SCOPED_TRACE(bad);
    Lab lab;
    const Workspace workspace =
        Workspace::Create(lab.context(), kType,
                          {.rows = kRows, .width = kWidth, .vocabulary = kSize})
            .value();
    const auto memory = lab.Raw<int32_t>(kRows + 1);
    const int32_t values[] = {1, 299, bad, 1, 7};
    std::copy(std::begin(values), std::end(values), memory.begin());
    const TokenIds ids = {memory.data(), 1, kRows, kSize};
    const auto tokens = lab.Noise<T>(kSize * kWidth), positions = lab.Noise<T>(kRows * kWidth);
    const auto x = lab.Raw<T>(kRows * kWidth), dx = lab.Noise<T>(kRows * kWidth);
    const auto dtokens = lab.Raw<T>(kSize * kWidth);
    const auto logits = lab.Noise<T>(kRows * kSize);
    const auto losses = lab.Raw<float>(kRows), mean = lab.Raw<float>(1), seed = lab.Raw<float>(1);
    seed[0] = 1;
    device::Stream& stream = lab.stream();
    ASSERT_OK(Embedding(ids, kType, kWidth, tokens.data(), positions.data(), x.data(), stream));
    ASSERT_OK(
        EmbeddingBackward(ids, kType, kWidth, dx.data(), {dtokens.data()}, {}, workspace, stream));
    ASSERT_OK(CrossEntropy(ids, kType, logits.data(), losses.data(), stream));
    ASSERT_OK(CrossEntropyBackward(ids, kType, logits.data(), seed.data(), stream));
    ASSERT_OK(MeanOfLosses(kType, losses.data(), kRows,
                           lab.Raw<double>(PartsOfLosses(kRows)).data(), mean.data(), stream));
    ASSERT_OK(stream.Synchronize());
    const auto is_nan = [](T value) { return std::isnan(Widen(value)); };
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      EXPECT_EQ(is_nan(x[i]), i / kWidth == kBad) << i;
    }
    // Its row predicts an id that there is; the one before it does not.
    for (int64_t r = 0; r < kRows; ++r) EXPECT_EQ(std::isnan(losses[r]), r == kBad - 1) << r;
    EXPECT_TRUE(std::isnan(mean[0]));
    for (int64_t i = 0; i < kRows * kSize; ++i) {
      ASSERT_EQ(is_nan(logits[i]), i / kSize == kBad - 1) << i;
    }
    for (int64_t i = 0; i < kSize * kWidth; ++i) {
      const int64_t id = i / kWidth, column = i % kWidth;
      float wanted = 0;
      if (id == 1) wanted = Widen(dx[column]) + Widen(dx[3 * kWidth + column]);
      if (id == 299) wanted = Widen(dx[kWidth + column]);
      ASSERT_EQ(Widen(dtokens[i]), Widen(T(wanted))) << i;
    }
  }
}

TEST(TokenIdsTest, RowsPredictTheirLabelsAndThoseIgnoredHaveNoLoss) {
  constexpr int64_t kBatch = 2, kContext = 3, kRows = kBatch * kContext, kSize = 5, kWidth = 2;
  Lab lab;
  const auto ids = lab.Raw<int32_t>(kRows), labels = lab.Raw<int32_t>(kRows);
  const int32_t ignored = TokenIds::kIgnoredLabel;
  const std::vector<int32_t> all_ids = {0, 1, 2, 3, 4, 1};
  const std::vector<int32_t> all_labels = {4, ignored, 0, ignored, 2, ignored};
  std::copy(all_ids.begin(), all_ids.end(), ids.begin());
  std::copy(all_labels.begin(), all_labels.end(), labels.begin());
  const TokenIds labelled =
      TokenIds::WithLabels(ids.data(), labels.data(), kBatch, kContext, kSize);
  const auto tokens = lab.Noise<double>(kSize * kWidth), x = lab.Raw<double>(kRows * kWidth);
  ASSERT_OK(
      Embedding(labelled, DType::kFloat64, kWidth, tokens.data(), nullptr, x.data(), lab.stream()));
  const auto logits = lab.Noise<double>(kRows * kSize), losses = lab.Raw<double>(kRows);
  const auto seed = lab.Raw<float>(1);
  seed[0] = 0.5f;
  const auto sum_of_losses = [&] {
    EXPECT_OK(CrossEntropy(labelled, DType::kFloat64, logits.data(), losses.data(), lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return 0.5 * sum;
  };
  sum_of_losses();
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kWidth; ++c) EXPECT_EQ(x[r * kWidth + c], tokens[ids[r] * kWidth + c]);
    double sum = 0;
    for (int64_t c = 0; c < kSize; ++c) sum += std::exp(logits[r * kSize + c]);
    if (labels[r] == ignored) {
      EXPECT_EQ(losses[r], 0) << r;
    } else {
      EXPECT_NEAR(losses[r], std::log(sum) - logits[r * kSize + labels[r]], 1e-14) << r;
    }
  }
  const auto gradient = lab.Raw<double>(logits.size());
  std::copy(logits.begin(), logits.end(), gradient.begin());
  ASSERT_OK(
      CrossEntropyBackward(labelled, DType::kFloat64, gradient.data(), seed.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  ExpectGradient(logits, gradient, sum_of_losses);
  for (int64_t c = 0; c < kSize; ++c) EXPECT_EQ(gradient[kSize + c], 0);

  // A label that is none of the vocabulary is no ignored one; without labels all are ignored.
  labels[1] = -1;
  ASSERT_OK(CrossEntropy(labelled, DType::kFloat64, logits.data(), losses.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (int64_t r = 0; r < kRows; ++r) EXPECT_EQ(std::isnan(losses[r]), r == 1) << r;
  const TokenIds bare = TokenIds::WithLabels(ids.data(), nullptr, kBatch, kContext, kSize);
  ASSERT_OK(CrossEntropy(bare, DType::kFloat64, logits.data(), losses.data(), lab.stream()));
  ASSERT_OK(lab.stream().Synchronize());
  for (const double loss : losses) EXPECT_EQ(loss, 0);
}

TEST(TokenIdsTest, SizesThatCannotBeAreRefusedByName) {
  Lab lab;
  const TokenIds empty = {nullptr, 1, 1, 0}, large = {nullptr, 1, 1, 257};
  EXPECT_EQ(Embedding(empty, DType::kFloat32, 1, nullptr, nullptr, nullptr, lab.stream()),
            absl::InvalidArgumentError("embedding: the vocabulary is 0; it must be at least 1"));
  EXPECT_EQ(
      CrossEntropy(empty, DType::kFloat32, nullptr, nullptr, lab.stream()),
      absl::InvalidArgumentError("cross_entropy: the vocabulary is 0; it must be at least 1"));
  EXPECT_EQ(CrossEntropyBackward(empty, DType::kFloat32, nullptr, nullptr, lab.stream()),
            absl::InvalidArgumentError(
                "cross_entropy_backward: the vocabulary is 0; it must be at least 1"));
  EXPECT_EQ(
      EmbeddingBackward(empty, DType::kFloat32, 1, nullptr, {}, {}, lab.workspace(), lab.stream()),
      absl::InvalidArgumentError("embedding_backward: the vocabulary is 0; it must be at least 1"));
  EXPECT_EQ(
      EmbeddingBackward(large, DType::kFloat32, 1, nullptr, {}, {}, lab.workspace(), lab.stream()),
      absl::InvalidArgumentError("embedding_backward: the workspace is for a vocabulary of "
                                 "256; the tokens have one of 257"));
  EXPECT_EQ(Workspace::Create(lab.context(), DType::kFloat32, {.vocabulary = 0}).status(),
            absl::InvalidArgumentError("workspace: vocabulary is 0; it must be at least 1"));
}

}  // namespace
}  // namespace brigade::nn
