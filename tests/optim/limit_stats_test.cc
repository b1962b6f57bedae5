#include "brigade/optim/limit_stats.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

using kernels::GradStats;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class LimitStatsTest : public ::testing::Test {
 protected:
  // Whether the gradients still count as finite.
  bool Fit(std::vector<GradStats> gradients, const GradStats& others, float loss_scale,
           double divisor, double limit) {
    const std::vector<GradStats> before = gradients;
    kernels::StepState state = {};
    state.loss_scale = loss_scale;
    EXPECT_OK(LimitStats(absl::MakeSpan(gradients), &others, &state, divisor, limit, *stream_));
    EXPECT_OK(stream_->Synchronize());
    for (size_t i = 1; i < gradients.size(); ++i) {
      EXPECT_EQ(gradients[i].sum_of_squares, before[i].sum_of_squares) << i;
      EXPECT_EQ(gradients[i].all_finite, before[i].all_finite) << i;
    }
    if (gradients[0].all_finite == 0) {
      EXPECT_EQ(gradients[0].sum_of_squares, kInfinity);
      return false;
    }
    EXPECT_EQ(gradients[0].sum_of_squares, before[0].sum_of_squares);
    return true;
  }

  std::unique_ptr<device::Context> context_ =
      device::Context::Create({.compute_threads = 1}).value();
  std::unique_ptr<device::Stream> stream_ = context_->CreateStream("stream").value();
};

TEST_F(LimitStatsTest, TheNormOfWhatTheGradientsAreUnscaledMustBeBelowTheLimit) {
  // A norm of 48 at a scale of 4, divided by 2: 6.
  const double norm = 48, sum = norm * norm;
  for (const double above : {6.0, std::nextafter(6.0, 0.0), 1.0}) {
    EXPECT_FALSE(Fit({{sum, 1}}, {0, 1}, 4.0f, 2.0, above)) << above;
    EXPECT_FALSE(Fit({{sum / 4, 1}, {sum / 4, 1}, {sum / 2, 1}}, {0, 1}, 4.0f, 2.0, above));
  }
  EXPECT_TRUE(Fit({{sum, 1}}, {0, 1}, 4.0f, 2.0, 6.0 + 1e-9));
  EXPECT_TRUE(Fit({{sum / 2, 1}, {sum / 2, 1}}, {0, 1}, 4.0f, 2.0, 6.0 + 1e-9));
}

TEST_F(LimitStatsTest, TheNormOfTheOthersMustBeBelowTheLimitWhateverTheScale) {
  for (const float scale : {0x1p-20f, 1.0f, 65536.0f}) {
    EXPECT_FALSE(Fit({{0, 1}}, {36, 1}, scale, 1.0, 6.0));
    EXPECT_TRUE(Fit({{0, 1}}, {std::nextafter(36, 0.0), 1}, scale, 1.0, 6.0));
    EXPECT_FALSE(Fit({{0, 1}}, {kInfinity, 0}, scale, 1.0, 0x1p100));
    EXPECT_FALSE(Fit({{0, 1}}, {std::nan(""), 1}, scale, 1.0, 0x1p100));
  }
}

TEST_F(LimitStatsTest, AnOverflowStaysOneInWhateverListItIs) {
  EXPECT_FALSE(Fit({{kInfinity, 0}, {1, 1}}, {0, 1}, 1.0f, 1.0, 0x1p100));
  EXPECT_FALSE(Fit({{1, 1}, {kInfinity, 0}}, {0, 1}, 1.0f, 1.0, 0x1p100));
}

TEST_F(LimitStatsTest, BadArgumentsAreNamed) {
  using ::brigade::testing::StatusIs;
  using ::testing::HasSubstr;
  GradStats gradients = {}, others = {};
  const kernels::StepState state = {};
  const auto expect = [&](const absl::Status& status, const char* text) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  const absl::Span<GradStats> list(&gradients, 1);
  expect(LimitStats({}, &others, &state, 1, 1, *stream_), "lists");
  expect(LimitStats(list, nullptr, &state, 1, 1, *stream_), "others");
  expect(LimitStats(list, &others, nullptr, 1, 1, *stream_), "state");
  expect(LimitStats(list, &gradients, &state, 1, 1, *stream_), "overlap");
  for (const double bad : {0.0, -1.0, 0x1p101, std::nan("")}) {
    expect(LimitStats(list, &others, &state, bad, 1, *stream_), "divisor");
    expect(LimitStats(list, &others, &state, 1, bad, *stream_), "limit");
  }
}

}  // namespace
}  // namespace brigade::optim
