#include "brigade/models/predictor.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "brigade/data/dataset.h"
#include "brigade/tests/models/lab.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kContext = 9;

// Samples of different lengths, of which some positions count.
class Numbers final : public data::Dataset {
 public:
  Numbers(int64_t size, int64_t vocabulary, int32_t segments = 1)
      : size_(size), vocabulary_(vocabulary), segments_(segments) {}

  int64_t size() const override { return size_; }
  int64_t context() const override { return kContext; }
  int64_t vocabulary() const override { return vocabulary_; }
  int64_t CountedLabels(int64_t sample) const override {
    int64_t counted = 0;
    for (int64_t t = 0; t < kContext; ++t) counted += Counts(sample, t);
    return counted;
  }
  bool Counts(int64_t sample, int64_t t) const { return t >= 2 && t < 4 + sample % 6; }
  int32_t Id(int64_t sample, int64_t t) const {
    return static_cast<int32_t>((7 * sample + 3 * t + t * t) % vocabulary_);
  }
  absl::Status Read(int64_t sample, const data::Row& row) const override {
    for (int64_t t = 0; t <= kContext; ++t) row.ids[static_cast<size_t>(t)] = Id(sample, t);
    for (int64_t t = 0; t < kContext; ++t) {
      const auto i = static_cast<size_t>(t);
      row.labels[i] = Counts(sample, t) ? Id(sample, t + 1) : data::kIgnored;
      row.positions[i] = static_cast<int32_t>(t);
      row.segments[i] = static_cast<int32_t>(t) * segments_ / static_cast<int32_t>(kContext);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_, vocabulary_;
  const int32_t segments_;
};

class PredictorTest : public ::testing::TestWithParam<DecoderConfig> {};
INSTANTIATE_TEST_SUITE_P(Models, PredictorTest, ::testing::Values(TinyLlama(), TinyGpt2()),
                         [](const auto& info) {
                           return std::string(NameOf(info.param.architecture));
                         });

// From logits in double, position by position.
TEST_P(PredictorTest, IsWhatTheLogitsSay) {
  const Numbers dataset(7, GetParam().vocabulary);
  ModelLab lab(GetParam(), {.dtype = DType::kFloat64, .positions = kContext, .trains = false});
  lab.Initialize(3, 30);
  double sum = 0;
  int64_t tokens = 0, correct = 0;
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < kContext; ++t) ids.push_back(dataset.Id(sample, t));
    ASSERT_OK(Forward(lab.model(), {lab.Filled(ids).data(), nullptr, 1, kContext}, nullptr,
                      lab.arrays(), lab.stream()));
    const auto logits = lab.Read(lab.model().logits(), kContext * GetParam().vocabulary);
    for (int64_t t = 0; t < kContext; ++t) {
      if (!dataset.Counts(sample, t)) continue;
      const auto row = logits.begin() + t * GetParam().vocabulary;
      const auto end = row + GetParam().vocabulary;
      double total = 0;
      for (auto at = row; at != end; ++at) total += std::exp(*at);
      sum += std::log(total) - row[dataset.Id(sample, t + 1)];
      ++tokens;
      correct += std::max_element(row, end) - row == dataset.Id(sample, t + 1);
    }
  }
  for (const int64_t samples : {1, 3, 7, 20}) {
    auto predictor = Predictor::Create(
        GetParam(), {.dtype = DType::kFloat64, .samples = samples, .positions = kContext},
        lab.context());
    ASSERT_OK(predictor);
    const auto prediction = predictor->Predict(dataset, lab.arrays());
    ASSERT_OK(prediction);
    EXPECT_EQ(prediction->samples, 7);
    EXPECT_EQ(prediction->tokens, tokens);
    EXPECT_EQ(prediction->correct, correct);
    EXPECT_NEAR(prediction->sum_of_losses, sum, 1e-10 * sum);
    EXPECT_NEAR(prediction->perplexity(), std::exp(sum / static_cast<double>(tokens)), 1e-6);
    EXPECT_GT(prediction->seconds, 0);
  }
}

// Segments that share a row have the losses that they have as rows of their own.
class Alone final : public data::Dataset {
 public:
  Alone(const data::Dataset& packed, int64_t segments) : packed_(packed), segments_(segments) {}

  int64_t size() const override { return packed_.size() * segments_; }
  int64_t context() const override { return packed_.context(); }
  int64_t vocabulary() const override { return packed_.vocabulary(); }
  int64_t CountedLabels(int64_t /*sample*/) const override { return 0; }
  absl::Status Read(int64_t sample, const data::Row& row) const override {
    const absl::Status read = packed_.Read(sample / segments_, row);
    size_t size = 0;
    for (size_t t = 0; t < row.labels.size(); ++t) {
      if (row.segments[t] != sample % segments_) continue;
      row.ids[size] = row.ids[t];
      row.labels[size++] = row.labels[t];
    }
    std::fill(row.labels.begin() + static_cast<std::ptrdiff_t>(size), row.labels.end(),
              data::kIgnored);
    std::fill(row.segments.begin(), row.segments.end(), 0);
    return read;
  }

 private:
  const data::Dataset& packed_;
  const int64_t segments_;
};

TEST_P(PredictorTest, SegmentsHaveWhatTheyHaveAlone) {
  constexpr int32_t kSegments = 3;
  const Numbers packed(7, GetParam().vocabulary, kSegments);
  ModelLab lab(GetParam(), {.dtype = DType::kFloat64, .positions = kContext, .trains = false});
  lab.Initialize(3, 30);
  const auto predict = [&](const data::Dataset& dataset, int64_t samples, bool segments,
                           bool restart) {
    auto predictor = Predictor::Create(GetParam(),
                                       {.dtype = DType::kFloat64,
                                        .samples = samples,
                                        .positions = kContext,
                                        .segments = segments,
                                        .restart_positions = restart},
                                       lab.context());
    EXPECT_OK(predictor);
    const auto prediction = predictor->Predict(dataset, lab.arrays());
    EXPECT_OK(prediction);
    return prediction.value_or(Prediction());
  };
  const Prediction alone = predict(Alone(packed, kSegments), 4, false, true);
  EXPECT_GT(alone.tokens, 0);
  for (const int64_t samples : {1, 3, 7, 20}) {
    const Prediction shared = predict(packed, samples, true, true);
    EXPECT_EQ(shared.samples, 7);
    EXPECT_EQ(shared.tokens, alone.tokens);
    EXPECT_EQ(shared.correct, alone.correct);
    EXPECT_NEAR(shared.sum_of_losses, alone.sum_of_losses, 1e-10 * alone.sum_of_losses);
  }
  // A Llama's attention sees distances alone; a table of positions gives others.
  const Prediction counted_on = predict(packed, 3, true, false);
  const bool has_table = GetParam().architecture == Architecture::kGpt2;
  EXPECT_EQ(std::abs(counted_on.sum_of_losses - alone.sum_of_losses) > 1e-6, has_table);
  // One segment a row: the bits of none.
  const Numbers whole(7, GetParam().vocabulary);
  EXPECT_EQ(predict(whole, 3, true, true).sum_of_losses,
            predict(whole, 3, false, true).sum_of_losses);
}

TEST(PredictorErrorsTest, NameWhatDoesNotFit) {
  ModelLab lab(TinyGpt2(), {.dtype = DType::kFloat32, .positions = kContext, .trains = false});
  lab.Initialize(3, 1);
  auto predictor = Predictor::Create(
      TinyGpt2(), {.dtype = DType::kFloat32, .samples = 2, .positions = kContext}, lab.context());
  ASSERT_OK(predictor);
  EXPECT_THAT(predictor->Predict(Numbers(3, 24), lab.arrays()),
              StatusIs(kInvalid, HasSubstr("24 tokens for a model of 23")));
  EXPECT_THAT(predictor->Predict(Numbers(3, 23, 2), lab.arrays()),
              StatusIs(kInvalid, HasSubstr("several segments")));
  const auto none = predictor->Predict(Numbers(0, 23), lab.arrays());
  ASSERT_OK(none);
  EXPECT_TRUE(std::isnan(none->loss()));
  auto longer = Predictor::Create(
      TinyGpt2(), {.dtype = DType::kFloat32, .samples = 2, .positions = 10}, lab.context());
  ASSERT_OK(longer);
  EXPECT_THAT(longer->Predict(Numbers(3, 23), lab.arrays()),
              StatusIs(kInvalid, HasSubstr("samples of 9 positions for a predictor of 10")));
}

}  // namespace
}  // namespace brigade::models
