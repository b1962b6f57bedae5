// Checks the specification against references in double, written from the sources' formulas and
// from the definition of the formats.

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "brigade/tests/spec/adam8.h"
#include "brigade/tests/spec/codecs.h"
#include "brigade/tests/spec/formats.h"
#include "brigade/tests/spec/lamb.h"
#include "brigade/tests/spec/low_rank.h"
#include "brigade/tests/spec/one_bit_lamb.h"
#include "brigade/tests/spec/optimizers.h"
#include "brigade/tests/spec/parallel.h"
#include "brigade/tests/spec/stages.h"
#include "brigade/tests/spec/step_control.h"
#include "brigade/tests/spec/sums.h"
#include "brigade/tests/spec/top_k.h"
#include "brigade/tests/spec/wire.h"
#include "brigade/tests/testing/tolerance.h"
#include "gtest/gtest.h"

namespace brigade::spec {
namespace {

using brigade::testing::RoundingError;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// All non-negative finite values of a 16-bit format in ascending order, from its definition:
// fraction * 2^(exponent - bits), and from there on by doubling.
std::vector<double> AllValues(Format format) {
  const FormatLimits limits = LimitsOf(format);
  std::vector<double> values;
  const int one = 1 << limits.fraction_bits;
  for (int fraction = 0; fraction < one; ++fraction) {
    values.push_back(std::ldexp(fraction, limits.min_exponent - limits.fraction_bits));
  }
  for (int exponent = limits.min_exponent; values.back() < limits.max_finite; ++exponent) {
    for (int fraction = one; fraction < 2 * one; ++fraction) {
      values.push_back(std::ldexp(fraction, exponent - limits.fraction_bits));
    }
  }
  return values;
}

class FormatTest : public ::testing::TestWithParam<Format> {};

TEST_P(FormatTest, RoundsToTheNearestValueAndTiesToTheEvenOne) {
  const std::vector<double> values = AllValues(GetParam());
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = (values[i] + values[i + 1]) / 2;
    const float tie = static_cast<float>(middle);
    const double even = i % 2 == 0 ? values[i] : values[i + 1];
    ASSERT_EQ(Round(GetParam(), static_cast<float>(values[i])), values[i]);
    // The subnormals of bfloat16 end where float's do: there the middle is no float.
    if (tie != middle) continue;
    ASSERT_EQ(Round(GetParam(), tie), even) << tie;
    ASSERT_EQ(Round(GetParam(), -tie), -even) << tie;
    ASSERT_EQ(Round(GetParam(), std::nextafter(tie, 0.0f)), values[i]) << tie;
    ASSERT_EQ(Round(GetParam(), std::nextafter(tie, kInfinity)), values[i + 1]) << tie;
  }
}

TEST_P(FormatTest, OverflowsToInfinityFromHalfAUnitPastTheLargestValue) {
  const std::vector<double> values = AllValues(GetParam());
  const double largest = values.back();
  const double half_unit = (largest - values[values.size() - 2]) / 2;
  const float tie = static_cast<float>(largest + half_unit);
  EXPECT_EQ(Round(GetParam(), std::nextafter(tie, 0.0f)), largest);
  EXPECT_EQ(Round(GetParam(), tie), kInfinity);
  EXPECT_EQ(Round(GetParam(), -tie), -kInfinity);
  EXPECT_EQ(Round(GetParam(), kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Round(GetParam(), std::nanf(""))));
  EXPECT_TRUE(std::signbit(Round(GetParam(), -0.0f)));
}

INSTANTIATE_TEST_SUITE_P(SixteenBits, FormatTest,
                         ::testing::Values(Format::kFloat16, Format::kBFloat16));

// Kingma and Ba, algorithm 1, with Loshchilov and Hutter's decay or L2, in double.
struct AdamReference {
  double theta, m = 0, v = 0;
  int t = 0;
  void Step(double g, double lr, const AdamRule& rule) {
    ++t;
    if (!rule.decoupled) g += rule.weight_decay * theta;
    m = rule.beta1 * m + (1 - rule.beta1) * g;
    v = rule.beta2 * v + (1 - rule.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(rule.beta1, t));
    const double v_hat = v / (1 - std::pow(rule.beta2, t));
    if (rule.decoupled) theta -= lr * rule.weight_decay * theta;
    theta -= lr * m_hat / (std::sqrt(v_hat) + rule.eps);
  }
};

TEST(AdamSpecTest, FollowsThePapersFormulaWithinTheRoundingOfFloat) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  constexpr int kSteps = 50;
  for (const bool decoupled : {true, false}) {
    for (int trial = 0; trial < 200; ++trial) {
      const AdamRule rule{
          .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-2, .weight_decay = 0.1, .decoupled = decoupled};
      const float lr = 0.01f;
      const float multiplier = 0.125f;
      AdamElement x{normal(random), 0.0f, 0.0f};
      AdamReference reference{.theta = x.param};
      for (int t = 1; t <= kSteps; ++t) {
        const float g = 1.0f + 0.5f * std::tanh(normal(random));  // one sign: m does not cancel
        x = AdamUpdate(x, g, multiplier, rule, MakeGroupStep(rule.beta1, rule.beta2, lr, t));
        reference.Step(static_cast<double>(g) * multiplier, lr, rule);
      }
      // Per step: three roundings in m, four in v, and in theta two at its own size and, scaled by
      // lr, a dozen of the direction and what m and v brought along.
      EXPECT_NEAR(x.m, reference.m, RoundingError<float>(3 * kSteps, 0.25));
      EXPECT_NEAR(x.v, reference.v, RoundingError<float>(4 * kSteps, 0.25));
      const double size = std::max(std::fabs(reference.theta), 1.0);
      EXPECT_NEAR(x.param, reference.theta,
                  RoundingError<float>(kSteps, 2 * 4.0 * size + lr * (12 + 7 * kSteps)));
    }
  }
}

TEST(SgdSpecTest, FollowsTheDocumentedFormulaWithinTheRoundingOfFloat) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  constexpr int kSteps = 20;
  for (int variant = 0; variant < 32; ++variant) {
    const SgdRule rule{.momentum = variant & 1 ? 0.9 : 0.0,
                       .dampening = variant & 2 ? 0.5 : 0.0,
                       .weight_decay = variant & 4 ? 0.01 : 0.0,
                       .nesterov = (variant & 8) != 0,
                       .decoupled = (variant & 16) != 0};
    const float lr = 0.05f;
    SgdElement x{normal(random), 0.0f};
    double theta = x.param;
    double buffer = 0;
    for (int t = 1; t <= kSteps; ++t) {
      const float gradient = normal(random);
      x = SgdUpdate(x, gradient, 0.5f, rule, lr, t);
      double g = 0.5 * gradient;
      if (!rule.decoupled) g += rule.weight_decay * theta;
      if (rule.momentum != 0) {
        buffer = t == 1 ? g : rule.momentum * buffer + (1 - rule.dampening) * g;
        g = rule.nesterov ? g + rule.momentum * buffer : buffer;
      }
      if (rule.decoupled) theta -= lr * rule.weight_decay * theta;
      theta -= lr * g;
    }
    EXPECT_NEAR(x.momentum, buffer, RoundingError<float>(4 * kSteps, 10)) << variant;
    EXPECT_NEAR(x.param, theta, RoundingError<float>(6 * kSteps, 10)) << variant;
  }
}

// Chen et al., algorithm 2, in double.
TEST(LionSpecTest, FollowsThePapersFormulaWithinTheRoundingOfFloat) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  constexpr int kSteps = 50;
  for (int trial = 0; trial < 200; ++trial) {
    const LionRule rule{.beta1 = 0.9, .beta2 = 0.98, .weight_decay = trial % 2 == 0 ? 0.1 : 0.0};
    const float lr = 0.01f;
    LionElement x{normal(random), 0.0f};
    double theta = x.param;
    double m = 0;
    int near_zero = 0;
    for (int t = 1; t <= kSteps; ++t) {
      const float gradient = normal(random);
      x = LionUpdate(x, gradient, 0.5f, rule, lr);
      const double g = 0.5 * gradient;
      const double c = rule.beta1 * m + (1 - rule.beta1) * g;
      // A sign that rounding can change.
      near_zero += std::fabs(c) < 1e-6 ? 1 : 0;
      theta -= lr * (static_cast<double>((c > 0) - (c < 0)) + rule.weight_decay * theta);
      m = rule.beta2 * m + (1 - rule.beta2) * g;
    }
    EXPECT_NEAR(x.m, m, RoundingError<float>(4 * kSteps, 1));
    EXPECT_NEAR(x.param, theta, RoundingError<float>(3 * kSteps, 4) + near_zero * 2 * lr);
  }
}

// Rate 1/4, betas 1/2 and 3/4, no decay, from 1: gradients 4, -2, 0, 0.
TEST(LionSpecTest, GivesTheAnswerWorkedOutByHand) {
  LionElement x{1.0f, 0.0f};
  const LionRule rule{.beta1 = 0.5, .beta2 = 0.75};
  // directions 2, -1/2, 1/8, 3/32
  const float gradients[] = {4, -2, 0, 0};
  const float params[] = {0.75f, 1.0f, 0.75f, 0.5f};
  const float moments[] = {1.0f, 0.25f, 0.1875f, 0.140625f};
  for (int t = 0; t < 4; ++t) {
    x = LionUpdate(x, gradients[t], 1.0f, rule, 0.25f);
    EXPECT_EQ(x.param, params[t]) << t;
    EXPECT_EQ(x.m, moments[t]) << t;
  }
  const LionElement still = LionUpdate({2.0f, 0.0f}, 0.0f, 1.0f, {.weight_decay = 1.0}, 0.25f);
  EXPECT_EQ(still.param, 1.5f);
  EXPECT_TRUE(std::isnan(LionUpdate({2.0f, 0.0f}, NAN, 1.0f, rule, 0.25f).param));
}

// As bitsandbytes makes them: middles of linspace(0.1, 1, n + 1) times 10^(i - 6), sorted.
std::vector<double> Adam8Numbers(bool has_sign) {
  std::vector<double> numbers = {0.0, 1.0};
  for (int i = 0; i < 7; ++i) {
    const int parts = 1 << (has_sign ? i : i + 1);
    for (int j = 0; j < parts; ++j) {
      const double low = 0.1 + 0.9 * j / parts, high = 0.1 + 0.9 * (j + 1) / parts;
      const double number = (low + high) / 2 * std::pow(10.0, i - 6);
      numbers.push_back(number);
      if (has_sign) numbers.push_back(-number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

TEST(Adam8SpecTest, HasTheNumbersOfBitsandbytes) {
  for (const bool has_sign : {true, false}) {
    const std::vector<double> numbers = Adam8Numbers(has_sign);
    ASSERT_EQ(numbers.size(), 256u);
    for (int code = 0; code < 256; ++code) {
      const double number = numbers[static_cast<size_t>(code)];
      EXPECT_NEAR(Adam8Number(has_sign, code), number, std::fabs(number) * 2e-7) << code;
    }
    // What bitsandbytes 0.45 prints of them.
    EXPECT_FLOAT_EQ(Adam8Number(has_sign, 254), has_sign ? 0.99296875f : 0.996484375f);
    EXPECT_FLOAT_EQ(Adam8Number(has_sign, has_sign ? 128 : 1), has_sign ? 5.5e-7f : 3.25e-7f);
  }
}

TEST(Adam8SpecTest, GivesTheNearestNumberWithinTheRoundingOfFloat) {
  std::mt19937 random(6);
  std::uniform_real_distribution<double> exponent(-8.0, 0.0);
  for (const bool has_sign : {true, false}) {
    const std::vector<double> numbers = Adam8Numbers(has_sign);
    const auto expect_nearest = [&](float x, bool is_negative) {
      const int code = Adam8Code(has_sign, x, is_negative);
      const double value = is_negative ? -double{x} : double{x};
      double least = 2.0;
      for (const double number : numbers) {
        // Of second moments 0 is the code of 0 alone.
        if (!has_sign && number == 0 && x > 0) continue;
        least = std::min(least, std::fabs(number - value));
      }
      EXPECT_NEAR(std::fabs(numbers[static_cast<size_t>(code)] - value), least, x * 4e-7 + 1e-14)
          << x << " " << is_negative;
    };
    for (int trial = 0; trial < 20000; ++trial) {
      expect_nearest(static_cast<float>(std::pow(10.0, exponent(random))), has_sign && trial % 2);
    }
    for (const float x : {0.0f, 1.0f, 1e-30f, 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f}) {
      expect_nearest(x, false);
      if (has_sign) expect_nearest(x, true);
    }
    // Each number has the code that stands for it.
    for (int code = 0; code < 256; ++code) {
      const float number = Adam8Number(has_sign, code);
      EXPECT_EQ(Adam8Code(has_sign, std::fabs(number), std::signbit(number)), code);
    }
  }
}

// What bitsandbytes does, in double: moments of the table, the update, the largest of each block
// and the nearest of the table. Codes may differ where two are as near.
TEST(Adam8SpecTest, FollowsThePublishedAlgorithmWithinRounding) {
  const std::vector<double> of_m = Adam8Numbers(true), of_v = Adam8Numbers(false);
  const auto nearest = [](const std::vector<double>& numbers, double x) {
    const auto after = std::lower_bound(numbers.begin(), numbers.end(), x);
    if (after == numbers.begin()) return numbers.front();
    if (after == numbers.end()) return numbers.back();
    return x - *(after - 1) < *after - x ? *(after - 1) : *after;
  };
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  constexpr size_t kSize = 1000, kBlocks = 4;
  const AdamRule rule = {.weight_decay = 0.01};
  Adam8Tensor x = {std::vector<float>(kSize), std::vector<uint8_t>(kSize),
                   std::vector<uint8_t>(kSize), std::vector<float>(kBlocks),
                   std::vector<float>(kBlocks)};
  for (float& each : x.param) each = normal(random);
  std::vector<double> p(x.param.begin(), x.param.end()), m(kSize), v(kSize);
  const double lr = 1e-2;
  for (int t = 1; t <= 40; ++t) {
    std::vector<float> g(kSize);
    for (size_t i = 0; i < kSize; ++i) {
      g[i] = normal(random) * std::ldexp(1.0f, static_cast<int>(i % 16) - 12);
    }
    const double c1 = 1 - std::pow(0.9, t), c2 = 1 - std::pow(0.999, t);
    Adam8Step(x, g, 1.0f, rule,
              {static_cast<float>(lr), static_cast<float>(lr / c1),
               static_cast<float>(1 / std::sqrt(c2))});
    for (size_t begin = 0; begin < kSize; begin += 256) {
      const size_t end = std::min(kSize, begin + 256);
      double largest_m = 0, largest_v = 0;
      for (size_t i = begin; i < end; ++i) {
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.999 * v[i] + 0.001 * double{g[i]} * g[i];
        p[i] -= lr * (0.01 * p[i] + m[i] / c1 / (std::sqrt(v[i] / c2) + 1e-8));
        largest_m = std::max(largest_m, std::fabs(m[i]));
        largest_v = std::max(largest_v, v[i]);
      }
      for (size_t i = begin; i < end; ++i) {
        m[i] = nearest(of_m, m[i] / largest_m) * largest_m;
        // Not to 0.
        v[i] = std::max(nearest(of_v, v[i] / largest_v), of_v[1]) * largest_v;
      }
    }
  }
  int apart = 0;
  for (size_t i = 0; i < kSize; ++i) apart += std::fabs(x.param[i] - p[i]) > 2e-5 ? 1 : 0;
  // A code on an edge, in one step of 40, moves its element from then on.
  EXPECT_LE(apart, static_cast<int>(kSize) / 100);
}

// Rate 1, betas 1/2, from 0: m = 2 and 1, v = 8 and 2, whose codes are those of 1 and of 0.496 and
// 0.2477 (of 64 and 128 parts).
TEST(Adam8SpecTest, GivesTheAnswerWorkedOutByHand) {
  Adam8Tensor x = {{1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {0}, {0}};
  const AdamRule rule = {.beta1 = 0.5, .beta2 = 0.5};
  Adam8Step(x, {4, -2, 0}, 1.0f, rule, {1.0f, 2.0f, std::sqrt(2.0f)});
  EXPECT_NEAR(x.param[0], 0.0f, 1e-6);
  EXPECT_NEAR(x.param[1], 2.0f, 1e-6);
  EXPECT_EQ(x.param[2], 1.0f);
  EXPECT_EQ(x.m_scale[0], 2.0f);
  EXPECT_EQ(x.v_scale[0], 8.0f);
  // 64 (0.5 - 0.1) / 0.9 = 28.4, and 128 (0.25 - 0.1) / 0.9 = 21.3.
  EXPECT_EQ(x.m, (std::vector<uint8_t>{255, 127 - (64 + 28), 127}));
  EXPECT_EQ(x.v, (std::vector<uint8_t>{255, 127 + 21, 0}));
  Adam8Step(x, {std::nanf(""), 0, 0}, 1.0f, rule, {1.0f, 1.0f, 1.0f});
  EXPECT_TRUE(std::isnan(x.m_scale[0]) && std::isnan(x.v_scale[0]));
  EXPECT_EQ(x.m, std::vector<uint8_t>(3, 127));
  EXPECT_EQ(x.v, std::vector<uint8_t>(3, 0));
}

// M = diag(3, 1), Q = (1, 1) / sqrt 2: P = (3, 1) / sqrt 10, Q = (9, 1) / sqrt 10.
TEST(LowRankSpecTest, GivesTheAnswerWorkedOutByHand) {
  Matrix m = {2, 2, {3, 0, 0, 1}};
  const float half = std::sqrt(0.5f);
  Columns p = TimesColumns(m, {{half, half}});
  Orthogonalize(p, 1e-8);
  const Columns q = TransposedTimesColumns(m, p);
  const Matrix product = Restore(m, p, q);
  const double products[] = {2.7, 0.3, 0.9, 0.1};
  const double errors[] = {0.3, -0.3, -0.9, 0.9};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(product.values[i], products[i], RoundingError<float>(8, 3));
    EXPECT_NEAR(m.values[i], errors[i], RoundingError<float>(8, 3));
  }
}

// Columns of length 1 that are orthogonal, in the space of those before: in double.
TEST(LowRankSpecTest, OrthogonalizesWithinTheRoundingOfFloat) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const size_t rows : {1u, 3u, 700u, 2000u}) {
    const size_t rank = std::min<size_t>(rows, 6);
    Columns columns(rank, std::vector<float>(rows));
    for (auto& column : columns) {
      for (float& x : column) x = normal(random);
    }
    const Columns before = columns;
    Orthogonalize(columns, 1e-8);
    const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
      return sum;
    };
    for (size_t k = 0; k < rank; ++k) {
      // Square ones may have a last column that is nearly in the space of the others.
      const double tolerance = rows > rank ? 1e-6 : 1e-4;
      EXPECT_NEAR(dot(columns[k], columns[k]), 1.0, 1e-6);
      for (size_t l = 0; l < k; ++l) EXPECT_NEAR(dot(columns[k], columns[l]), 0.0, tolerance);
      std::vector<double> rest(before[k].begin(), before[k].end());
      for (size_t l = 0; l <= k; ++l) {
        double along = 0;
        for (size_t i = 0; i < rows; ++i) along += rest[i] * columns[l][i];
        for (size_t i = 0; i < rows; ++i) rest[i] -= along * columns[l][i];
      }
      for (const double x : rest) EXPECT_NEAR(x, 0.0, tolerance * 10);
    }
  }
}

// A matrix of rank 2 comes back from factors of rank 2, and what is left out and what is not are M.
TEST(LowRankSpecTest, KeepsAMatrixOfTheRankOfItsFactors) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  Columns left(2, std::vector<float>(300)), right(2, std::vector<float>(140)), q = right;
  for (Columns* columns : {&left, &right, &q}) {
    for (auto& column : *columns) {
      for (float& x : column) x = normal(random);
    }
  }
  Matrix m = {300, 140, std::vector<float>(300 * 140)};
  for (size_t i = 0; i < m.rows; ++i) {
    for (size_t j = 0; j < m.columns; ++j) {
      m.at(i, j) = left[0][i] * right[0][j] + left[1][i] * right[1][j];
    }
  }
  const Matrix before = m;
  Columns p = TimesColumns(m, q);
  Orthogonalize(p, 1e-8);
  q = TransposedTimesColumns(m, p);
  const Matrix product = Restore(m, p, q);
  for (size_t i = 0; i < m.values.size(); ++i) {
    EXPECT_NEAR(m.values[i], 0.0f, 1e-4f);
    EXPECT_NEAR(product.values[i] + m.values[i], before.values[i], 1e-6f);
  }
}

// Top-1 with memory: of [3, -4, 1] -4 is sent; then with [1, 1, 1] added to what is left, 4 at 0.
TEST(TopKSpecTest, GivesTheAnswersWorkedOutByHand) {
  EXPECT_EQ(TopK({3, -4, 1}, 1), std::vector<int32_t>({1}));
  EXPECT_EQ(TopK({4, 1, 2}, 1), std::vector<int32_t>({0}));
  EXPECT_EQ(TopK({1, -2, 2, -2, 2}, 3), std::vector<int32_t>({1, 2, 3}));
  EXPECT_EQ(TopK({0, -0.0f, 0}, 2), std::vector<int32_t>({0, 1}));
  EXPECT_EQ(TopK({1, INFINITY, NAN, -NAN, 5}, 2), std::vector<int32_t>({2, 3}));
  EXPECT_EQ(TopK({1, -INFINITY, NAN, 5}, 2), std::vector<int32_t>({1, 2}));
  EXPECT_EQ(TopK({1, 2}, 0), std::vector<int32_t>());
  EXPECT_EQ(TopK({1, 2}, 2), std::vector<int32_t>({0, 1}));
}

// You et al., algorithm 2 with the identity for phi, in double.
TEST(LambSpecTest, FollowsThePapersFormulaWithinTheRoundingOfFloat) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  constexpr size_t kSize = 9000;
  constexpr int kSteps = 10;
  for (const double decay : {0.0, 0.1}) {
    const LambRule rule{
        .beta2 = 0.99, .eps = 1e-2, .weight_decay = decay, .min_trust = 0.0, .max_trust = 3e38};
    const double lr = 0.01;
    LambTensor x = {std::vector<float>(kSize), std::vector<float>(kSize),
                    std::vector<float>(kSize)};
    for (float& p : x.param) p = normal(random);
    std::vector<double> theta(x.param.begin(), x.param.end()), m(kSize), v(kSize), r(kSize);
    for (int t = 1; t <= kSteps; ++t) {
      std::vector<float> gradients(kSize);
      for (float& g : gradients) g = 1.0f + 0.5f * std::tanh(normal(random));
      LambStep(x, gradients, 0.125f, rule,
               MakeGroupStep(rule.beta1, rule.beta2, static_cast<float>(lr), t));
      double of_theta = 0, of_r = 0;
      for (size_t i = 0; i < kSize; ++i) {
        const double g = 0.125 * static_cast<double>(gradients[i]);
        m[i] = rule.beta1 * m[i] + (1 - rule.beta1) * g;
        v[i] = rule.beta2 * v[i] + (1 - rule.beta2) * g * g;
        const double m_hat = m[i] / (1 - std::pow(rule.beta1, t));
        const double v_hat = v[i] / (1 - std::pow(rule.beta2, t));
        r[i] = m_hat / (std::sqrt(v_hat) + rule.eps) + decay * theta[i];
        of_theta += theta[i] * theta[i];
        of_r += r[i] * r[i];
      }
      const double trust = std::sqrt(of_theta) / std::sqrt(of_r);
      for (size_t i = 0; i < kSize; ++i) theta[i] -= lr * trust * r[i];
    }
    for (size_t i = 0; i < kSize; ++i) {
      const double size = std::max(std::fabs(theta[i]), 1.0);
      EXPECT_NEAR(x.param[i], theta[i], RoundingError<float>(kSteps, 8 * size));
    }
  }
}

// First step: the update is the sign of the gradient. Norms 1 and 2; beyond both bounds; zeros.
TEST(LambSpecTest, GivesTheAnswersWorkedOutByHand) {
  const auto trust = [](std::vector<float> param, float gradient, const LambRule& rule) {
    LambTensor x = {param, std::vector<float>(param.size()), std::vector<float>(param.size())};
    return LambStep(x, std::vector<float>(param.size(), gradient), 1.0f, rule,
                    MakeGroupStep(rule.beta1, rule.beta2, 0.1f, 1));
  };
  const LambRule rule{.eps = 1e-12};
  EXPECT_NEAR(trust({0.5f, 0.5f, -0.5f, -0.5f}, 8, rule), 0.5f, 1e-6f);
  EXPECT_EQ(trust({300, 400}, 8, rule), 10.0f);
  EXPECT_EQ(trust({3e-5f, 4e-5f}, 8, rule), 0.01f);
  EXPECT_EQ(trust({0, -0.0f}, 8, rule), 1.0f);
  EXPECT_EQ(trust({3, 4}, 0, rule), 1.0f);
}

// Gradients of one size for all elements: their signs lose nothing.
TEST(OneBitLambSpecTest, GivesTheAnswersWorkedOutByHand) {
  const OneBitLambRule rule = {.lamb = {.beta1 = 0.5, .beta2 = 0.75, .eps = 1e-12},
                               .ratio_beta = 0.9};
  std::vector<OneBitLambTensor> tensors(1);
  tensors[0].x = {{0.5f, 0.5f, -0.5f, -0.5f}, std::vector<float>(4), std::vector<float>(4)};
  OneBitLambWarmUp(tensors[0], std::vector<float>(4, 8.0f), 1.0f, 0.1f, rule);
  // m = 4 and v = 16: an update of 1, with twice the tensor's norm.
  EXPECT_FLOAT_EQ(tensors[0].ratio, 0.05f);
  EXPECT_FLOAT_EQ(tensors[0].x.param[0], 0.45f);
  OneBitLambFreeze(tensors);
  EXPECT_EQ(tensors[0].scale, 1.0f);
  OneBitState errors(2, 4);
  const auto step = [&](float gradient, bool skip) {
    OneBitLambStep(tensors, {{std::vector<float>(4, gradient)}, {std::vector<float>(4, gradient)}},
                   1.0f, 0.1f, rule, skip, errors);
  };
  // m = 6, over a root of 4; the fresh root is that of 28, but the ratio falls by a tenth.
  step(8.0f, false);
  EXPECT_EQ(tensors[0].x.m[3], 6.0f);
  EXPECT_EQ(tensors[0].x.v[3], 16.0f);
  EXPECT_FLOAT_EQ(tensors[0].fresh_v[3], 28.0f);
  EXPECT_FLOAT_EQ(tensors[0].factor, 0.9f);
  EXPECT_FLOAT_EQ(tensors[0].x.param[0], 0.45f - 0.1f * 0.045f * 1.5f);
  // No gradient: m = 3, and of the momentum's change nothing is left. The fresh root is that of 21.
  const float before = tensors[0].x.param[0];
  step(0.0f, false);
  EXPECT_EQ(tensors[0].x.m[0], 3.0f);
  EXPECT_FLOAT_EQ(tensors[0].fresh_v[0], 21.0f);
  EXPECT_FLOAT_EQ(tensors[0].factor, 4.0f / std::sqrt(21.0f));
  EXPECT_FLOAT_EQ(tensors[0].x.param[0], before - 0.1f * 0.05f * tensors[0].factor * 0.75f);
  const std::vector<float> kept = tensors[0].x.param;
  step(8.0f, true);
  EXPECT_EQ(tensors[0].x.param, kept);
  EXPECT_EQ(tensors[0].x.m[0], 3.0f);
}

// Momenta of 1 and of 100: each gets a factor by which it is like their mean on the wire.
TEST(OneBitLambSpecTest, SmallMomentaAreNotLostBesideLargeOnes) {
  const OneBitLambRule rule = {.lamb = {.beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.25}};
  std::vector<OneBitLambTensor> tensors(2);
  for (size_t t = 0; t < 2; ++t) {
    tensors[t].x = {std::vector<float>(8, 2.0f), std::vector<float>(8), std::vector<float>(8)};
    OneBitLambWarmUp(tensors[t], std::vector<float>(8, t == 0 ? 2.0f : -200.0f), 1.0f, 0.0f, rule);
  }
  OneBitLambFreeze(tensors);
  EXPECT_FLOAT_EQ(tensors[0].scale, 50.5f);
  EXPECT_FLOAT_EQ(tensors[1].scale, 0.505f);
  OneBitState errors(1, 16);
  OneBitLambStep(tensors, {{std::vector<float>(8, 2.0f), std::vector<float>(8, -200.0f)}}, 1.0f,
                 0.1f, rule, false, errors);
  EXPECT_FLOAT_EQ(tensors[0].x.m[5], 1.5f);
  EXPECT_FLOAT_EQ(tensors[1].x.m[5], -150.0f);
  // Of a tensor that decays, the quotient counts for its direction alone.
  EXPECT_FLOAT_EQ(tensors[0].factor, 0.9f);
}

TEST(SumSpecTest, AddsTheSquaresOfAListWithinTheRoundingOfDouble) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const std::vector<size_t>& sizes : std::vector<std::vector<size_t>>{
           {}, {0}, {1}, {255, 0, 257}, {8191, 8192, 8193}, {100000, 3}}) {
    std::vector<std::vector<float>> segments;
    long double exact = 0;
    for (const size_t size : sizes) {
      segments.emplace_back(size);
      for (float& x : segments.back()) {
        x = normal(random);
        exact += static_cast<long double>(x) * x;
      }
    }
    const GradStats stats = SumOfSquares(segments);
    EXPECT_TRUE(stats.all_finite);
    // A term passes at most 32 additions in its lane, 8 halvings, the same 8 and a few for the
    // tiles.
    EXPECT_NEAR(stats.sum_of_squares, static_cast<double>(exact),
                RoundingError<double>(64, static_cast<double>(exact)));
  }
}

TEST(SumSpecTest, CallsAValueAnOverflowFromTheFirstWhoseSquareOverflowsFloat) {
  const float first = 0x1p64f;
  const float last_good = std::nextafter(first, 0.0f);
  volatile float square = last_good * last_good;  // as the hardware says it
  EXPECT_FALSE(std::isinf(square));
  square = first * first;
  EXPECT_TRUE(std::isinf(square));
  EXPECT_TRUE(SumOfSquares({std::vector<float>(100, last_good)}).all_finite);
  for (const float bad : {first, -first, kInfinity, -kInfinity, std::nanf("")}) {
    EXPECT_FALSE(SumOfSquares({{1.0f, 2.0f}, {}, {0.0f, bad}}).all_finite) << bad;
  }
}

TEST(StepControlSpecTest, MovesTheLossScaleAsDeepSpeedsTablesSay) {
  struct Row {
    float start;
    LossScaleRule rule;
    std::vector<int> overflows;
    std::vector<float> scales;
  };
  const LossScaleRule rule{.window = 2, .hysteresis = 1};
  const std::vector<Row> rows = {
      {256,
       rule,
       std::vector<int>(10, 0),
       {256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096}},
      {256, rule, {1, 1, 0, 0, 0, 1}, {128, 64, 64, 64, 128, 64}},
      {256, rule, std::vector<int>(8, 1), {128, 64, 32, 16, 8, 4, 2, 1}},
      // By hand from the rule: the first overflow uses up the hysteresis, and only growth restores
      // it...
      {256, {.window = 100, .hysteresis = 2}, {1, 1, 0, 1}, {256, 128, 128, 64}},
      {256, {.window = 2, .hysteresis = 2}, {1, 0, 0, 0, 1, 1}, {256, 256, 256, 512, 512, 256}},
      // ... unless every good step does.
      {256,
       {.window = 100, .hysteresis = 2, .consecutive_hysteresis = true},
       {1, 1, 0, 1},
       {256, 128, 128, 128}},
      {256, {.window = 1, .hysteresis = 1, .max_scale = 512}, {0, 0, 0}, {256, 512, 512}},
      {256, {.dynamic = false}, {1, 1, 1, 0}, {256, 256, 256, 256}},
  };
  for (const Row& row : rows) {
    StepState state{.loss_scale = row.start, .hysteresis = row.rule.hysteresis};
    for (size_t i = 0; i < row.overflows.size(); ++i) {
      UpdateLossScale(row.rule, row.overflows[i] != 0, state);
      EXPECT_EQ(state.loss_scale, row.scales[i]) << "step " << i;
      EXPECT_FALSE(state.stuck_at_minimum);
    }
    if (state.loss_scale == 1) {
      UpdateLossScale(row.rule, true, state);
      EXPECT_TRUE(state.stuck_at_minimum);
      EXPECT_EQ(state.loss_scale, 1);
    }
  }
}

TEST(StepControlSpecTest, ClipsByTheNormOfTheUnscaledMeanGradient) {
  StepRule rule{.divisor = 6.0, .clip = 0.5};
  StepState state{.loss_scale = 1024.0f};
  ControlStep({{9.0 * 1024 * 1024, true}, {16.0 * 1024 * 1024, true}}, rule, state);
  const double norm = 5.0 / 6.0;
  EXPECT_NEAR(state.grad_norm, norm, RoundingError<double>(3, norm));
  const double multiplier = 0.5 / (norm + 1e-6) / (1024.0 * 6.0);
  EXPECT_NEAR(state.multiplier, multiplier, RoundingError<float>(2, multiplier));
  EXPECT_EQ(state.step, 1);
}

TEST(StepControlSpecTest, CorrectsTheBiasAsThePowerInDoubleDoes) {
  for (const int64_t t : {1, 2, 3, 10, 1000, 100000, 10000000}) {
    const GroupStep step = MakeGroupStep(0.9, 0.999, 1e-3f, t);
    const double size = 1e-3f / (1 - std::pow(0.9, t));
    const double inverse = 1 / std::sqrt(1 - std::pow(0.999, t));
    EXPECT_NEAR(step.step_size, size, RoundingError<float>(1.01, size)) << t;
    EXPECT_NEAR(step.inv_sqrt_correction, inverse, RoundingError<float>(1.01, inverse)) << t;
  }
}

// w = (0, 0), SGD with lr 1, x = (1, 2), loss = sum(w * x) on two ranks.
TEST(WireSpecTest, TakesTheLargestScaleForWhichNoSumOverflows) {
  for (const float largest : {1e-30f, 1e-9f, 1.0f, 65504.0f, 65536.0f, 1e5f, 1e30f}) {
    for (const size_t ranks : {1u, 2u, 3u, 4u, 5u, 1000u}) {
      const std::vector<std::vector<float>> of_rank(ranks, {largest, -largest / 3});
      const float scale = ScaleForWire(of_rank, Format::kFloat32, Format::kFloat16);
      EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale);
      EXPECT_LE(static_cast<double>(scale) * largest * static_cast<double>(ranks), 0x1p15);
      // Not more than two powers of two are given away, by rounding up the value and the ranks.
      EXPECT_GT(static_cast<double>(scale) * largest * static_cast<double>(ranks), 0x1p13);
    }
  }
  EXPECT_EQ(ScaleForWire({{0.0f}}, Format::kFloat32, Format::kFloat16), 1.0f);
  EXPECT_EQ(ScaleForWire({{1e30f, kInfinity}}, Format::kFloat32, Format::kFloat16), 1.0f);
  EXPECT_EQ(ScaleForWire({{1e5f}}, Format::kFloat32, Format::kBFloat16), 1.0f);
  EXPECT_EQ(ScaleForWire({{1e-5f}}, Format::kFloat16, Format::kFloat16), 1.0f);
}

TEST(WireSpecTest, AddsWithinTheRoundingsOfTheWire) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 1e5f);
  std::vector<std::vector<float>> of_rank(4, std::vector<float>(100));
  for (auto& values : of_rank) {
    for (float& x : values) x = normal(random);
  }
  const float scale = ScaleForWire(of_rank, Format::kFloat32, Format::kFloat16);
  for (const SumOrder& order : {SumOrder(), SumOrder{2, false}, SumOrder{2, true}}) {
    const std::vector<float> sums = SumOverWire(of_rank, Format::kFloat16, scale, 10, 60, order);
    ASSERT_EQ(sums.size(), 50u);
    for (size_t i = 0; i < sums.size(); ++i) {
      double sum = 0, magnitudes = 0;
      for (const auto& values : of_rank) {
        sum += values[10 + i];
        magnitudes += std::fabs(values[10 + i]);
      }
      // Its own, its node's and the sum's rounding.
      EXPECT_NEAR(sums[i], sum, 3.1 * 0x1p-11 * magnitudes);
    }
  }
}

TEST(StagesSpecTest, GivesTheKnownAnswersForMeanAndSum) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const bool mean : {true, false}) {
      TrainingRule rule{.stage = stage,
                        .ranks = 2,
                        .format = Format::kFloat32,
                        .optimizer = TrainingRule::Optimizer::kSgd};
      rule.step.divisor = mean ? 2.0 : 1.0;
      rule.learning_rates = {1.0f};
      Training training(rule, {{0.0f, 0.0f}});
      training.Step([](size_t, int, const Buckets&, float loss_scale) {
        return Buckets{{1.0f * loss_scale, 2.0f * loss_scale}};
      });
      const Buckets expected = mean ? Buckets{{-1, -2}} : Buckets{{-2, -4}};
      EXPECT_EQ(training.FullParameters(), expected) << "stage " << stage;
    }
  }
}

// loss = w^2 / 2, rate 1/2: w as it is used, exact in binary.
TEST(StagesSpecTest, DelaysTheUpdateAsTheKnownAnswerSays) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int64_t delay_from : {-1, 0, 2}) {
      TrainingRule rule{.stage = stage,
                        .ranks = 1,
                        .format = Format::kFloat32,
                        .optimizer = TrainingRule::Optimizer::kSgd};
      rule.learning_rates = {0.5f};
      rule.delay_from = delay_from;
      Training training(rule, {{1.0f}});
      std::vector<float> used;
      for (int step = 0; step < 9; ++step) {
        training.Step([&](size_t, int, const Buckets& weights, float loss_scale) {
          used.push_back(weights[0][0]);
          return Buckets{{weights[0][0] * loss_scale}};
        });
      }
      const std::vector<float> wanted =
          delay_from == 0 ? std::vector<float>{1, 1, 0.5, 0, -0.25, -0.25, -0.125, 0, 0.0625}
          : delay_from == 2
              ? std::vector<float>{1, 0.5, 0.25, 0.25, 0.125, 0, -0.0625, -0.0625, -0.03125}
              : std::vector<float>{1,       0.5,      0.25,      0.125,     0.0625,
                                   0.03125, 0.015625, 0.0078125, 0.00390625};
      EXPECT_EQ(used, wanted) << "stage " << stage << ", delay from " << delay_from;
    }
  }
}

// 0/1 Adam in double, element by element. Gradients of one size for all elements: their signs lose
// nothing, so that ranks exchange exact means, though one has three times the other's.
TEST(StagesSpecTest, ZeroOneAdamFollowsThePapersAlgorithmWithinTheRoundingOfFloat) {
  constexpr double kRate = 0.01, kBeta1 = 0.9, kBeta2 = 0.99, kEps = 1e-8;
  constexpr int kFreeze = 9, kSteps = 30;
  TrainingRule rule{.stage = 0,
                    .ranks = 2,
                    .format = Format::kFloat32,
                    .optimizer = TrainingRule::Optimizer::kAdam};
  rule.adam_rule = {.beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps};
  rule.learning_rates = {static_cast<float>(kRate)};
  rule.step.divisor = 2.0;
  rule.entries = {{{0, 4}}};
  rule.var_update_scaler = 2;
  rule.var_freeze_step = kFreeze;
  rule.local_step_scaler = 3;
  rule.local_step_clipper = 4;
  const std::vector<float> signs = {1, -1, 1, -1};
  Training training(rule, {{0.5f, -0.25f, 1.0f, 2.0f}});

  double moved = 0.0;         // of each element, but for the sign
  double m[2] = {}, v = 0.0;  // of each rank; of all
  double since[2] = {}, rates = 0.0, at_meeting = 0.0;
  const std::vector<float> first = training.FullMaster()[0];
  // As the paper's schedules have it: second moments in steps 1 to 2 of interval 1, then of
  // interval 2, then of 4; meetings in 3 steps of interval 1, then of 2, then of 4.
  const std::vector<bool> updates = {true, true, false, true, false, true, false, true, false};
  std::vector<bool> meets;
  for (int step = kFreeze, interval = 1; step < kSteps; ++step) {
    meets.push_back((step + 1) % interval == 0);
    if ((step - kFreeze) % 3 == 2) interval = std::min(2 * interval, 4);
  }
  for (int step = 0; step < kSteps; ++step) {
    const double size = 1.0 + 0.5 * (step % 3);
    training.Step([&](size_t rank, int, const Buckets&, float loss_scale) {
      Buckets gradients(1);
      for (const float sign : signs) {
        gradients[0].push_back(sign * static_cast<float>(size) * (rank == 0 ? 0.5f : 1.5f) *
                               loss_scale);
      }
      return gradients;
    });
    if (step < kFreeze) {
      m[0] = m[1] = kBeta1 * m[0] + (1 - kBeta1) * size;
      if (updates[static_cast<size_t>(step)]) v = kBeta2 * v + (1 - kBeta2) * size * size;
      moved += kRate * m[0] / (std::sqrt(v) + kEps);
      at_meeting = moved;
    } else {
      for (int rank = 0; rank < 2; ++rank) {
        m[rank] = kBeta1 * m[rank] + (1 - kBeta1) * size * (rank == 0 ? 0.5 : 1.5);
        since[rank] += kRate * m[rank];
      }
      rates += kRate;
      moved = at_meeting + since[0] / (std::sqrt(v) + kEps);
      if (meets[static_cast<size_t>(step - kFreeze)]) {
        const double mean = (since[0] + since[1]) / 2;
        m[0] = m[1] = mean / rates;
        at_meeting = moved = at_meeting + mean / (std::sqrt(v) + kEps);
        since[0] = since[1] = rates = 0.0;
      }
    }
    for (size_t i = 0; i < signs.size(); ++i) {
      EXPECT_NEAR(training.FullMaster()[0][i], first[i] - signs[i] * moved, 2e-6)
          << "step " << step << ", element " << i;
    }
  }
}

// Error feedback of signs in double (Tang et al. 2021, arXiv 2102.02888, algorithm 1): each worker
// sends the signs of what it has with its error, times their root mean square, and the server does
// the same with the mean. Here each worker is the server of one part.
struct OneBitReference {
  using Lists = std::vector<std::vector<double>>;

  static std::vector<double> Compress(std::vector<double>& values, size_t begin, size_t end) {
    double squares = 0;
    for (size_t i = begin; i < end; ++i) squares += values[i] * values[i];
    const double scale = std::sqrt(squares / static_cast<double>(end - begin));
    std::vector<double> sent;
    for (size_t i = begin; i < end; ++i) {
      sent.push_back(values[i] < 0 ? -scale : scale);
      values[i] -= sent.back();
    }
    return sent;
  }

  std::vector<double> Mean(const Lists& of_worker) {
    const size_t workers = of_worker.size(), count = of_worker[0].size();
    const size_t part = (count + workers - 1) / workers;
    worker_errors.resize(workers, std::vector<double>(count));
    server_errors.resize(count);
    std::vector<double> mean = server_errors;
    for (size_t w = 0; w < workers; ++w) {
      for (size_t i = 0; i < count; ++i) worker_errors[w][i] += of_worker[w][i];
      const std::vector<double> sent = Compress(worker_errors[w], 0, count);
      for (size_t i = 0; i < count; ++i) mean[i] += sent[i] / static_cast<double>(workers);
    }
    server_errors = mean;
    std::vector<double> result;
    for (size_t begin = 0; begin < count; begin += part) {
      for (const double x : Compress(server_errors, begin, std::min(begin + part, count))) {
        result.push_back(x);
      }
    }
    return result;
  }

  Lists worker_errors;
  std::vector<double> server_errors;
};

// 1-bit Adam in double, on gradients of which signs lose much; with the bias corrected by the
// number of the step all along, and decay outside of the quotient.
TEST(StagesSpecTest, OneBitAdamFollowsThePapersAlgorithmWithinTheRoundingOfFloat) {
  constexpr double kRate = 0.01, kBeta1 = 0.9, kBeta2 = 0.99, kEps = 1e-8, kDecay = 0.1;
  constexpr int kFreeze = 7, kSteps = 30;
  constexpr size_t kRanks = 3, kElements = 12;
  for (int stage = 0; stage < 3; ++stage) {
    TrainingRule rule{.stage = stage,
                      .ranks = kRanks,
                      .format = Format::kFloat32,
                      .optimizer = TrainingRule::Optimizer::kAdam};
    rule.adam_rule = {.beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps, .weight_decay = kDecay};
    rule.learning_rates = {static_cast<float>(kRate)};
    rule.step.divisor = kRanks;
    rule.entries = {{{0, kElements}}};
    rule.is_one_bit_adam = true;
    rule.exchange_from = kFreeze;
    std::mt19937 random(3);
    std::uniform_real_distribution<float> size(0.5f, 1.5f);
    const auto draw = [&] { return random() % 4 == 0 ? -size(random) : size(random); };
    Buckets master(1);
    for (size_t i = 0; i < kElements; ++i) master[0].push_back(draw());
    Training training(rule, master);

    std::vector<double> x(master[0].begin(), master[0].end()), m(kElements), v(kElements);
    OneBitReference exchange;
    double moved = 0;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::vector<double>> gradients(kRanks);
      training.Step([&](size_t rank, int, const Buckets&, float loss_scale) {
        Buckets scaled(1);
        for (size_t i = 0; i < kElements; ++i) {
          const float g = draw();
          gradients[rank].push_back(g);
          scaled[0].push_back(g * loss_scale);
        }
        return scaled;
      });
      OneBitReference::Lists of_worker(kRanks);
      std::vector<double> mean(kElements);
      for (size_t i = 0; i < kElements; ++i) {
        for (size_t r = 0; r < kRanks; ++r) {
          of_worker[r].push_back(kBeta1 * m[i] + (1 - kBeta1) * gradients[r][i]);
          mean[i] += gradients[r][i] / kRanks;
        }
      }
      if (step < kFreeze) {
        for (size_t i = 0; i < kElements; ++i) {
          m[i] = kBeta1 * m[i] + (1 - kBeta1) * mean[i];
          v[i] = kBeta2 * v[i] + (1 - kBeta2) * mean[i] * mean[i];
        }
      } else {
        m = exchange.Mean(of_worker);
      }
      const double correction1 = 1 - std::pow(kBeta1, step + 1);
      const double correction2 = 1 - std::pow(kBeta2, step + 1);
      for (size_t i = 0; i < kElements; ++i) {
        const double update = m[i] / correction1 / (std::sqrt(v[i] / correction2) + kEps);
        x[i] = x[i] * (1 - kRate * kDecay) - kRate * update;
        moved = std::max(moved, std::fabs(update));
        // Weights of up to 2 round twice in a step. Up to 30 roundings have made an update of what
        // earlier exchanges have left, whose own roundings stay in the errors.
        const double of_updates = RoundingError<float>(30 * (step + 1), kRate * (step + 1) * moved);
        EXPECT_NEAR(training.FullMaster()[0][i], x[i],
                    RoundingError<float>(2 * (step + 1), 2.0) + of_updates)
            << "stage " << stage << ", step " << step << ", element " << i;
      }
    }
    // Far more than the bounds, though signs have left out much of what was sent.
    EXPECT_GT(moved, 0.5);
    double left = 0;
    for (const auto& errors : exchange.worker_errors) {
      for (const double error : errors) left = std::max(left, std::fabs(error));
    }
    EXPECT_GT(left, 0.1);
  }
}

struct StageCase {
  Format format;
  TrainingRule::Optimizer optimizer;
  int micro_batches;
  bool at_boundary;
  int stages;  // 0 to this one
};

TEST(StagesSpecTest, GivesTheSameBitsInEveryStage) {
  using Optimizer = TrainingRule::Optimizer;
  for (const StageCase& c :
       std::vector<StageCase>{{Format::kBFloat16, Optimizer::kAdam, 1, false, 3},
                              {Format::kFloat16, Optimizer::kAdam, 3, false, 3},
                              {Format::kFloat32, Optimizer::kSgd, 3, false, 3},
                              {Format::kBFloat16, Optimizer::kLion, 2, false, 3},
                              {Format::kBFloat16, Optimizer::kAdam, 3, true, 1}}) {
    Buckets expected;
    for (int stage = 0; stage <= c.stages; ++stage) {
      TrainingRule rule{.stage = stage,
                        .ranks = 3,
                        .micro_batches = c.micro_batches,
                        .reduce_at_boundary = c.at_boundary,
                        .format = c.format,
                        .optimizer = c.optimizer};
      rule.step.divisor = 3.0 * c.micro_batches;
      rule.step.clip = 1.0;
      rule.learning_rates = {1e-2f, 2e-2f};
      std::mt19937 random(7);
      std::normal_distribution<float> normal;
      Buckets master = {std::vector<float>(6), std::vector<float>(300)};
      for (auto& bucket : master) {
        for (float& x : bucket) x = normal(random);
      }
      Training training(rule, master);
      for (int step = 0; step < 8; ++step) {
        training.Step([&](size_t rank, int micro, const Buckets& parameters, float loss_scale) {
          Buckets gradients = parameters;
          for (auto& bucket : gradients) {
            for (float& x : bucket) x = (x + rank + normal(random)) * loss_scale / (1 + micro);
          }
          return gradients;
        });
      }
      if (c.format == Format::kFloat16) {
        EXPECT_LT(training.state().loss_scale, 65536.0f);
      }
      EXPECT_GT(training.state().step, 0);
      if (stage == 0) expected = training.FullMaster();
      EXPECT_NE(expected, master);
      EXPECT_EQ(training.FullMaster(), expected) << "stage " << stage;
    }
  }
}

// Weights and gradients as codes: stages 1 to 3 have one trajectory, and with gradients alone all
// have.
TEST(StagesSpecTest, CodesGiveTheSameBitsInEveryStage) {
  for (const int weight_bits : {0, 4}) {
    Buckets expected;
    for (int stage = weight_bits > 0 ? 1 : 0; stage < 4; ++stage) {
      TrainingRule rule{.stage = stage, .ranks = 4, .weight_bits = weight_bits, .gradient_bits = 8};
      rule.node_ranks = 2;
      rule.step.divisor = 4;
      rule.learning_rates = {1e-2f};
      Buckets master = {std::vector<float>(8), std::vector<float>(1200)};
      std::mt19937 random(11);
      std::normal_distribution<float> normal;
      for (auto& bucket : master) {
        for (float& x : bucket) x = normal(random);
      }
      Training training(rule, master);
      for (int step = 0; step < 5; ++step) {
        training.Step([&](size_t rank, int, const Buckets& parameters, float loss_scale) {
          Buckets gradients = parameters;
          for (auto& bucket : gradients) {
            for (float& x : bucket) x = (x + rank + normal(random)) * loss_scale;
          }
          // Of a block: the step is skipped, and what codes keep of weights is kept again.
          if (step == 2 && rank == 1) gradients[1][700] = kInfinity;
          return gradients;
        });
        EXPECT_EQ(training.state().skip, step == 2) << step;
      }
      if (expected.empty()) expected = training.FullParameters();
      EXPECT_EQ(training.FullParameters(), expected) << "stage " << stage;
    }
  }
}

// Scores 0 and ln 3, values 1 and 5.
TEST(RingSpecTest, TwoPartsMergeToTheKnownAnswer) {
  const AttentionPart both = Merge({0, 1}, {std::log(3.0), 5});
  EXPECT_NEAR(both.log_sum_exp, std::log(4.0), 1e-15);
  EXPECT_NEAR(both.out, 4, 1e-14);
  const AttentionPart none = {};
  EXPECT_EQ(Merge(none, both).out, both.out);
  EXPECT_EQ(Merge(both, none).log_sum_exp, both.log_sum_exp);
}

TEST(RingSpecTest, EveryRingIsTheSoftmaxOverWhatAQuerySees) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::vector<double> scores(24), values(24);
  for (double& score : scores) score = 3 * normal(random);
  for (double& value : values) value = normal(random);
  for (size_t query = 0; query < scores.size(); ++query) {
    double sum = 0, out = 0;
    for (size_t key = 0; key <= query; ++key) {
      sum += std::exp(scores[key]);
      out += std::exp(scores[key]) * values[key];
    }
    for (const int ranks : {1, 2, 3, 4}) {
      const AttentionPart part = RingAttentionOf(scores, values, query, ranks);
      EXPECT_NEAR(part.log_sum_exp, std::log(sum), 1e-13) << query;
      EXPECT_NEAR(part.out, out / sum, 1e-13) << query;
    }
  }
}

TEST(CodecsSpecTest, RoundsTheKnownBlockToEven) {
  const CodedBlock coded = Encode({7.0f, -3.5f, 1.0f, 0.4f}, 4);
  EXPECT_EQ(coded.maximum, 7.0f);
  EXPECT_EQ(std::vector<int>(coded.codes.begin(), coded.codes.begin() + 5),
            (std::vector<int>{7, -4, 1, 0, 0}));
  EXPECT_EQ(Dequantize(Quantize({7.0f, -3.5f, 1.0f, 0.4f}, 4), 4, 4),
            (std::vector<float>{7.0f, -4.0f, 1.0f, 0.0f}));
}

// The errors are those of the definition, in double: half a code, and the roundings to float.
TEST(CodecsSpecTest, KeepsTheMaximumAndMissesTheOthersByHalfACode) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const int bits : {8, 4}) {
    const double largest = LargestCode(bits);
    for (int exponent = -149; exponent < 127; ++exponent) {
      std::vector<float> values(300);
      for (float& x : values) x = std::ldexp(std::clamp(normal(random), -1.9f, 1.9f), exponent);
      const std::vector<uint8_t> message = Quantize(values, bits);
      ASSERT_EQ(message.size(), bits == 8 ? 576 : 320);
      const std::vector<float> back = Dequantize(message, values.size(), bits);
      for (size_t begin = 0; begin < values.size(); begin += kBlock) {
        const size_t end = std::min(begin + kBlock, values.size());
        double maximum = 0;
        for (size_t i = begin; i < end; ++i) {
          maximum = std::max(maximum, std::fabs(static_cast<double>(values[i])));
        }
        for (size_t i = begin; i < end; ++i) {
          const double error = std::fabs(static_cast<double>(back[i]) - values[i]);
          if (std::fabs(values[i]) == maximum) {
            EXPECT_EQ(error, 0) << exponent;
          }
          EXPECT_LE(error, maximum / (2 * largest) * (1 + 1e-4) + 0x1p-150) << exponent;
        }
      }
      // No subnormal ones, whose products lose bits.
      if (exponent > -100) {
        EXPECT_EQ(Quantize(back, bits), message) << exponent;
      }
    }
  }
}

TEST(CodecsSpecTest, ABlockThatIsNotFiniteComesBackAsNaN) {
  std::vector<float> values(600, 1.0f);
  values[300] = -kInfinity;
  const std::vector<float> back = Dequantize(Quantize(values, 8), values.size(), 8);
  for (size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(std::isnan(back[i]), i >= 256 && i < 512) << i;
  }
}

// 3 + 7 - 1 and so on, in codes that are exact.
TEST(CodecsSpecTest, AddsMessages) {
  const std::vector<std::vector<uint8_t>> messages = {
      Quantize({7.0f, 3.0f}, 4), Quantize({-7.0f, 1.0f}, 4), Quantize({14.0f, 2.0f}, 4)};
  EXPECT_EQ(DequantReduce(messages, 2, 4, 0.5f), (std::vector<float>{7.0f, 3.0f}));
}

// 7, -3.5, 1, 0.4 twice, with beta 1/4: the codes of 7, -4, 1, 0 leave out 0, 1/2, 0, 0.4, of which
// 3/4 enter the next ones, 0.3 as 102/127 of 0.375.
TEST(CodecsSpecTest, LocoGivesTheKnownAnswers) {
  const std::vector<float> array = {7.0f, -3.5f, 1.0f, 0.4f};
  std::vector<uint8_t> errors(CodesBegin(4) + kBlock);
  const auto step = [&](bool forget) {
    return Dequantize(LocoQuantize(array, errors, 4, 0.25f, forget), 4, 4);
  };
  const auto expect = [&](bool forget, const std::vector<float>& wanted) {
    const std::vector<float> kept = step(forget);
    for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(kept[i], wanted[i]) << i;
  };
  expect(false, {7, -4, 1, 0});
  const std::vector<float> first = Dequantize(errors, 4, 8);
  EXPECT_EQ(first[0], 0.0f);
  EXPECT_EQ(first[1], 0.375f);
  EXPECT_EQ(first[2], 0.0f);
  EXPECT_FLOAT_EQ(first[3], 0.375f * 102 / 127);
  expect(false, {7, -3, 1, 1});
  EXPECT_NEAR(Dequantize(errors, 4, 8)[3], -0.1488189, 1e-6);
  expect(true, {7, -4, 1, 0});
  EXPECT_EQ(Dequantize(errors, 4, 8), first);
}

// The sum of what codes keep, and of the last error over 1 - beta, is that of the arrays, but for
// what 8 bits leave out of errors: at most half a code a step. And so the mean over steps comes
// nearer to the array than what one message keeps of it.
TEST(CodecsSpecTest, LocoKeepsItsIdentity) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  constexpr int kSteps = 200;
  for (const float beta : {0.0f, 0.5f, 0.8f}) {
    std::vector<float> array(300);
    for (float& x : array) x = normal(random);
    std::vector<uint8_t> errors(CodesBegin(300) + 2 * kBlock);
    std::vector<double> sums(300), slack(300);
    for (int step = 0; step < kSteps; ++step) {
      const auto kept = Dequantize(LocoQuantize(array, errors, 4, beta, false), 300, 4);
      for (size_t i = 0; i < 300; ++i) {
        float maximum;
        std::memcpy(&maximum, &errors[i / kBlock * 4], 4);
        sums[i] += kept[i];
        slack[i] += maximum / 254 / (1 - beta) * 1.001 + 1e-6;
      }
    }
    const auto last = Dequantize(errors, 300, 8);
    const auto once = Dequantize(Quantize(array, 4), 300, 4);
    double without = 0, with = 0;
    for (size_t i = 0; i < 300; ++i) {
      EXPECT_NEAR(sums[i] + last[i] / (1 - beta), kSteps * static_cast<double>(array[i]), slack[i])
          << i << ", beta " << beta;
      without += std::pow(once[i] - array[i], 2);
      with += std::pow(sums[i] / kSteps - array[i], 2);
    }
    EXPECT_LT(std::sqrt(with), std::sqrt(without) / 10) << beta;
  }
}

// The same of sums over ranks, in one hop and in two, at every step: what came out, and all errors
// of ranks and of nodes' sums over 1 - beta, are what went in.
TEST(CodecsSpecTest, LocoKeepsItsIdentityOverRanksAndNodes) {
  constexpr size_t kRanks = 4, kPart = 300;
  constexpr int kSteps = 30;
  for (const size_t node_ranks : {0, 2}) {
    for (const float beta : {0.0f, 0.8f}) {
      std::mt19937 random(9);
      std::normal_distribution<float> normal;
      LocoState state(kRanks, kPart, node_ranks);
      std::vector<double> in(kRanks * kPart), out(in.size()), slack(in.size());
      double codes_miss = 0;
      for (int step = 0; step < kSteps; ++step) {
        std::vector<std::vector<float>> of_rank(kRanks, std::vector<float>(in.size()));
        for (auto& values : of_rank) {
          for (size_t i = 0; i < in.size(); ++i) in[i] += values[i] = normal(random);
        }
        const auto sums =
            LocoReduce(of_rank, 4, 1.0f, Format::kFloat32, beta, false, state, node_ranks);
        std::vector<double> left(in.size());
        for (size_t rank = 0; rank < kRanks; ++rank) {
          const auto count = [&](const std::vector<uint8_t>& message, size_t part) {
            const std::vector<float> errors = Dequantize(message, kPart, 8);
            for (size_t i = 0; i < kPart; ++i) {
              float maximum;
              std::memcpy(&maximum, &message[i / kBlock * 4], 4);
              left[part * kPart + i] += errors[i] / (1.0 - beta);
              // Half a code of 8 bits, and roundings to float of what is less than 16.
              slack[part * kPart + i] +=
                  (maximum / 254 + RoundingError<float>(6, 16)) / (1.0 - beta);
            }
          };
          for (size_t part = 0; part < kRanks; ++part) count(state.local[rank][part], part);
          for (size_t node = 0; node_ranks > 0 && node < kRanks / node_ranks; ++node) {
            count(state.sum[rank][node], node * node_ranks + rank % node_ranks);
          }
        }
        for (size_t i = 0; i < in.size(); ++i) {
          out[i] += sums[i / kPart][i % kPart];
          EXPECT_NEAR(out[i] + left[i], in[i], slack[i])
              << "nodes of " << node_ranks << ", beta " << beta << ", step " << step << ", " << i;
          codes_miss = std::max(codes_miss, std::fabs(out[i] - in[i]) / slack[i]);
        }
      }
      EXPECT_GT(codes_miss, 3);
    }
  }
}

TEST(CodecsSpecTest, LocoKeepsTheErrorsOfABlockThatIsNotFinite) {
  std::vector<float> array(600, 1.3f);
  array[0] = array[256] = array[512] = 7.0f;
  std::vector<uint8_t> errors(CodesBegin(600) + 3 * kBlock);
  LocoQuantize(array, errors, 4, 0.5f, false);
  const auto before = Dequantize(errors, 600, 8);
  array[300] = kInfinity;
  const auto back = Dequantize(LocoQuantize(array, errors, 4, 0.5f, true), 600, 4);
  for (size_t i = 0; i < 600; ++i) EXPECT_EQ(std::isnan(back[i]), i / 256 == 1) << i;
  EXPECT_EQ(Dequantize(errors, 600, 8), before);
  EXPECT_NE(before[300], 0.0f);
}

// The 1-bit all-reduce of two ranks, of which each owns one half: known scales, errors and results,
// and the identity of error feedback at every step.
TEST(CodecsSpecTest, OneBitAllReduceGivesTheKnownAnswers) {
  using Halves = std::vector<std::vector<float>>;
  const Halves inputs[] = {{{4, 28}, {-4, 28}}, {{3, -21}, {3, 21}}};
  Halves errors[] = {{{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}};
  Halves owner_errors = {{0, 0}, {0, 0}};
  std::vector<double> outputs(4), wanted(4);
  const float scales[][2] = {{20.0f, 15.0f}, {26.8328157f, 20.1246118f}};
  for (int step = 0; step < 4; ++step) {
    Signs sent[2];
    for (int rank = 0; rank < 2; ++rank) {
      sent[rank] = PackSigns(inputs[rank], errors[rank]);
      if (step < 2) {
        EXPECT_FLOAT_EQ(sent[rank].scale, scales[step][rank]);
      }
    }
    if (step == 0) {
      EXPECT_EQ(errors[0], (Halves{{-16, 8}, {16, 8}}));
      EXPECT_EQ(errors[1], (Halves{{-12, -6}, {-12, 6}}));
    }
    std::vector<float> out;
    for (size_t owner = 0; owner < 2; ++owner) {
      const Halves mean = {
          UnpackSigns({sent[0].messages[owner], sent[1].messages[owner]}, 2, 0.5f)};
      if (step == 0) {
        EXPECT_EQ(mean[0], (owner == 0 ? Halves{{17.5, 2.5}} : Halves{{-2.5, 17.5}})[0]);
      }
      Halves error = {owner_errors[owner]};
      const Signs signs = PackSigns(mean, error);
      owner_errors[owner] = error[0];
      for (const float x : UnpackSigns(signs.messages, 2, 1.0f)) out.push_back(x);
    }
    if (step == 0) {
      EXPECT_EQ(out, (std::vector<float>{12.5, 12.5, -12.5, 12.5}));
      EXPECT_EQ(owner_errors, (Halves{{5, -10}, {10, 5}}));
    }
    for (size_t i = 0; i < 4; ++i) {
      const auto at = [&](const Halves& halves) { return halves[i / 2][i % 2]; };
      outputs[i] += out[i];
      wanted[i] += (at(inputs[0]) + at(inputs[1])) / 2;
      EXPECT_NEAR(outputs[i] + (at(errors[0]) + at(errors[1])) / 2 + at(owner_errors), wanted[i],
                  1e-4)
          << step;
    }
  }
}

TEST(CodecsSpecTest, AnInfinityKeepsTheErrorsAndMarksTheScale) {
  std::vector<std::vector<float>> errors = {{1.0f, 2.0f}, {}};
  const Signs signs = PackSigns({{kInfinity, -3.0f}, {}}, errors);
  EXPECT_TRUE(std::isnan(signs.scale));
  EXPECT_EQ(errors[0], (std::vector<float>{1.0f, 2.0f}));
  EXPECT_EQ(signs.messages[0].size(), 128u);
  EXPECT_EQ(signs.messages[0][64], 2);
  EXPECT_TRUE(signs.messages[1].empty());
}

TEST(StagesSpecTest, SkipsTheUpdateOnEveryRankWhenOneRankOverflows) {
  TrainingRule rule{.stage = 2, .ranks = 2, .format = Format::kFloat16};
  rule.step.loss_scale.hysteresis = 1;
  Training training(rule, {{1.0f, 2.0f, 3.0f, 4.0f}});
  training.Step([](size_t rank, int, const Buckets&, float) {
    return Buckets{{0.0f, 0.0f, 0.0f, rank == 1 ? kInfinity : 0.0f}};
  });
  EXPECT_EQ(training.FullMaster(), (Buckets{{1.0f, 2.0f, 3.0f, 4.0f}}));
  EXPECT_TRUE(training.state().skip);
  EXPECT_EQ(training.state().step, 0);
  EXPECT_EQ(training.state().loss_scale, 32768.0f);
}

// In bfloat16, of 8 bits: 256 + 1 + 1 is 256 where two parts are added one by one, and 258 where
// the one part is a sum over four micro-batches.
TEST(StagesSpecTest, PartsOfAGradientAreSummedByThemselvesAndThenAdded) {
  for (const auto& [micro_batches, parts, whole, part, wanted] :
       {std::tuple(1, 2, 256.0f, 1.0f, -256.0f), std::tuple(4, 1, 64.0f, 0.5f, -258.0f)}) {
    TrainingRule rule{.micro_batches = micro_batches,
                      .accumulator = Format::kBFloat16,
                      .optimizer = TrainingRule::Optimizer::kSgd,
                      .learning_rates = {1.0f}};
    rule.parts.assign(static_cast<size_t>(parts), 0);
    Training training(rule, {{0.0f}});
    training.Step([&, whole = whole, part = part](size_t, int, const Buckets&, float loss_scale) {
      Buckets gradients = {{whole * loss_scale}};
      gradients.resize(1 + rule.parts.size(), {part * loss_scale});
      return gradients;
    });
    EXPECT_EQ(training.FullMaster(), (Buckets{{wanted}})) << micro_batches;
  }
}

}  // namespace
}  // namespace brigade::spec
