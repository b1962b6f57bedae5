#include "brigade/profile/flops.h"

#include <cmath>

#include "gtest/gtest.h"

namespace brigade::profile {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12;

// Rounded as it was published.
void ExpectPrinted(double value, double printed, int digits) {
  const double unit = std::pow(10.0, -digits);
  EXPECT_NEAR(value, printed, 0.5 * unit) << printed;
}

// 32 layers of 4096, context 2048.
constexpr TransformerSize kSevenBillion = {
    .weights = 7e9, .layers = 32, .width = 4096, .context = 2048};

TEST(FlopsTest, AModelOfSevenBillionNeeds45GflopForAToken) {
  ExpectPrinted(FlopsPerToken(kSevenBillion, AttentionFlops::kFull) / kGiga, 45.22, 2);
  EXPECT_DOUBLE_EQ(FlopsPerToken(kSevenBillion, AttentionFlops::kFull),
                   6 * 7e9 + 12.0 * 32 * 4096 * 2048);
  EXPECT_DOUBLE_EQ(FlopsPerToken(kSevenBillion, AttentionFlops::kCausal),
                   6 * 7e9 + 6.0 * 32 * 4096 * 2049);
}

TEST(FlopsTest, TenThousandTokensASecondAre46PercentOfAnH100) {
  const double rate = 10'000 * FlopsPerToken(kSevenBillion, AttentionFlops::kFull);
  ExpectPrinted(100 * Utilization(rate, 1, 989 * kTera), 45.7, 1);
  ExpectPrinted(100 * Utilization(rate * kAllAgain, 1, 989 * kTera), 61.0, 1);
  // A hundred times as many tokens by as many devices.
  EXPECT_DOUBLE_EQ(Utilization(100 * rate, 100, 989 * kTera), Utilization(rate, 1, 989 * kTera));
}

// DeepSpeed's page of its profiler: BERT-Large, A100, batch 80.
TEST(FlopsTest, RatesOfBertLargeAreThoseOfDeepSpeedsPage) {
  const double forward = 6279.86 * kGiga, forward_s = 0.07667, backward_s = 0.10802;
  ExpectPrinted(forward / forward_s / kTera, 81.9, 1);
  ExpectPrinted(2 * forward / backward_s / kTera, 116.3, 1);
  ExpectPrinted(3 * forward / (forward_s + backward_s) / kTera, 102.0, 1);
  // Of a peak of 312 TFLOPS.
  ExpectPrinted(Utilization(3 * forward / (forward_s + backward_s), 1, 312 * kTera), 0.327, 3);
}

// Its operations: 24 layers of 1024, 80 texts of 128 positions, by layers.
TEST(FlopsTest, ProductsOfBertLargeAreNearlyAllOfDeepSpeedsCount) {
  const double rows = 80 * 128, width = 1024;
  const double products = 24 * MatmulFlops(rows, width, 12 * width);
  const double attention = 24 * AttentionForwardFlops(80, 128, width, AttentionFlops::kFull);
  EXPECT_NEAR((products + attention) / (6279.86 * kGiga), 1.0, 0.01);
}

// torch.utils.flop_counter: mm 2 m k n; sdpa_flop_count two products of [s, d] by [d, s], and
// sdpa_backward_flop_count five, of which one makes the scores again.
TEST(FlopsTest, CountsAsPyTorchsFlopCounterDoes) {
  EXPECT_EQ(MatmulFlops(3, 5, 7), 210);
  EXPECT_EQ(MatmulFlops(1024, 1024, 1024), 2147483648.0);
  // 2 texts, 4 heads of 16, 128 positions: 2 * (2 * 4) * 2 * 128 * 16 * 128.
  EXPECT_EQ(AttentionForwardFlops(2, 128, 64, AttentionFlops::kFull), 8388608);
  EXPECT_EQ(AttentionBackwardFlops(2, 128, 64, AttentionFlops::kFull) +
                AttentionScoresFlops(2, 128, 64, AttentionFlops::kFull),
            20971520);
}

TEST(FlopsTest, CausalAttentionCountsThePairsThatItSees) {
  for (const int context : {1, 2, 31, 32, 33}) {
    double pairs = 0;
    for (int query = 0; query < context; ++query) {
      for (int key = 0; key <= query; ++key) ++pairs;
    }
    const double forward = AttentionForwardFlops(3, context, 8, AttentionFlops::kCausal);
    EXPECT_EQ(forward, 3 * pairs * 2 * 2 * 8) << context;
    EXPECT_EQ(AttentionBackwardFlops(3, context, 8, AttentionFlops::kCausal), 2 * forward);
    EXPECT_EQ(AttentionScoresFlops(3, context, 8, AttentionFlops::kCausal), forward / 2);
  }
}

TEST(FlopsTest, WhatIsNoProductCountsAsInDeepSpeed) {
  EXPECT_EQ(SoftmaxFlops(10), 10);
  EXPECT_EQ(GeluFlops(10), 10);
  EXPECT_EQ(LayerNormFlops(10), 50);
  EXPECT_EQ(LayerNormFlops(10, /*has_weights=*/false), 40);
}

TEST(FlopsTest, WithoutAPeakThereIsNoUtilization) {
  EXPECT_EQ(Utilization(1e12, 1, 0), 0);
  EXPECT_EQ(Utilization(1e12, 0, 1e12), 0);
}

}  // namespace
}  // namespace brigade::profile
