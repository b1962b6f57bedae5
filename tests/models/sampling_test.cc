#include "brigade/models/sampling.h"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::models {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Shares of tokens in so many draws.
std::map<int64_t, double> Shares(const std::vector<float>& logits, const SamplingOptions& options,
                                 int draws = 20000) {
  std::map<int64_t, double> shares;
  for (int i = 0; i < draws; ++i) {
    const auto token = SampleToken(logits, options, i % 3, i / 3);
    EXPECT_OK(token);
    shares[*token] += 1.0 / draws;
  }
  return shares;
}

// The share deviates by sqrt(p (1 - p) / 20000) < 0.0036.
constexpr double kFour = 4 * 0.0036;

const std::vector<float> kLogits = {0.0f, std::log(4.0f), std::log(2.0f), std::log(3.0f)};

TEST(SamplingTest, TokensComeWithTheirProbabilities) {
  auto shares = Shares(kLogits, {});
  EXPECT_NEAR(shares[0], 0.1, kFour);
  EXPECT_NEAR(shares[1], 0.4, kFour);
  EXPECT_NEAR(shares[2], 0.2, kFour);
  EXPECT_NEAR(shares[3], 0.3, kFour);
  // 1, 16, 4, 9 of 30.
  shares = Shares(kLogits, {.temperature = 0.5});
  EXPECT_NEAR(shares[0], 1 / 30.0, kFour);
  EXPECT_NEAR(shares[1], 16 / 30.0, kFour);
  EXPECT_NEAR(shares[3], 9 / 30.0, kFour);
}

TEST(SamplingTest, TopKTakesTheGreatestAndThoseEqualToTheLast) {
  auto shares = Shares(kLogits, {.top_k = 2});
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares[1], 4 / 7.0, kFour);
  EXPECT_NEAR(shares[3], 3 / 7.0, kFour);
  EXPECT_EQ(Shares(kLogits, {.top_k = 4}).size(), 4u);
  EXPECT_EQ(Shares(kLogits, {.top_k = 100}).size(), 4u);
  EXPECT_EQ(Shares({1, 2, 2, 2, 0}, {.top_k = 2}).size(), 3u);
}

TEST(SamplingTest, TopPTakesTheFewestThatHaveTheShare) {
  EXPECT_EQ(Shares(kLogits, {.top_p = 0.39}).size(), 1u);
  EXPECT_EQ(Shares(kLogits, {.top_p = 0.41}).size(), 2u);
  EXPECT_EQ(Shares(kLogits, {.top_p = 0.69}).size(), 2u);
  EXPECT_EQ(Shares(kLogits, {.top_p = 0.71}).size(), 3u);
  EXPECT_EQ(Shares(kLogits, {.top_p = 1e-9}).size(), 1u);
  auto shares = Shares(kLogits, {.top_p = 0.69});
  EXPECT_NEAR(shares[3], 3 / 7.0, kFour);
  // Of the two that top_k leaves, 4/7 and 3/7.
  EXPECT_EQ(Shares(kLogits, {.top_k = 2, .top_p = 0.5}).size(), 1u);
}

TEST(SamplingTest, WithoutTemperatureTheFirstGreatestComes) {
  EXPECT_EQ(*SampleToken({1, 3, 2, 3}, {.temperature = 0}, 0, 0), 1);
  EXPECT_EQ(*SampleToken({-kInfinity, -1}, {.temperature = 0}, 0, 0), 1);
}

TEST(SamplingTest, ATokenIsAFunctionOfSeedSampleAndPosition) {
  const std::vector<float> even(1000, 0.0f);
  const auto token = [&](uint64_t seed, int64_t sample, int64_t position) {
    return *SampleToken(even, {.seed = seed}, sample, position);
  };
  // Words 0 and 1 of Philox with counters and key of 0 are 6627e8d5 and e169c58d (Random123): the
  // token is that times 1000.
  EXPECT_EQ(token(0, 0, 0), 399);
  EXPECT_EQ(token(7, 1, 5), token(7, 1, 5));
  EXPECT_NE(token(7, 1, 5), token(8, 1, 5));
  EXPECT_NE(token(7, 1, 5), token(7, 2, 5));
  EXPECT_NE(token(7, 1, 5), token(7, 1, 6));
}

TEST(SamplingTest, ErrorsNameWhatIsWrong) {
  const auto refused = [&](const std::vector<float>& logits, const SamplingOptions& options,
                           const char* says) {
    EXPECT_THAT(SampleToken(logits, options, 0, 9), StatusIs(kInvalid, HasSubstr(says)));
  };
  refused({}, {}, "no logits");
  refused({1, NAN}, {}, "the logit of token 1 at position 9 is nan");
  refused({kInfinity, 1}, {}, "token 0 at position 9 is inf");
  refused({-kInfinity, -kInfinity}, {}, "all logits are -inf");
  refused({1}, {.temperature = -1}, "the temperature is -1");
  refused({1}, {.temperature = NAN}, "the temperature is nan");
  refused({1}, {.temperature = HUGE_VAL}, "the temperature is inf");
  refused({1}, {.top_k = -1}, "top_k is -1");
  refused({1}, {.top_p = 0}, "top_p is 0");
  refused({1}, {.top_p = 1.5}, "top_p is 1.5");
  refused({1}, {.top_p = NAN}, "top_p is nan");
  // Those never come.
  EXPECT_EQ(Shares({0, -kInfinity, 0}, {}, 100).count(1), 0u);
  EXPECT_EQ(*SampleToken({1, -1e30f}, {.temperature = 1e-300}, 0, 0), 0);
}

}  // namespace
}  // namespace brigade::models
