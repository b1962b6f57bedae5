#include "brigade/optim/loss_scaler.h"

#include <limits>

#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

TEST(LossScalerTest, TheDefaultLeavesTheLossAsItIs) {
  EXPECT_OK(Validate(LossScaler()));
  const kernels::LossScaleOptions options = LossScaler().ToKernelOptions();
  EXPECT_FALSE(options.dynamic);
  EXPECT_EQ(options.initial_scale, 1.0f);
}

TEST(LossScalerTest, StaticKeepsItsScale) {
  EXPECT_OK(Validate(LossScaler{.loss_scale = 128.0f}));
  const kernels::LossScaleOptions options = LossScaler{.loss_scale = 128.0f}.ToKernelOptions();
  EXPECT_FALSE(options.dynamic);
  EXPECT_EQ(options.initial_scale, 128.0f);
}

TEST(LossScalerTest, DynamicHasDeepSpeedsDefaults) {
  EXPECT_OK(Validate(LossScaler::Dynamic()));
  const kernels::LossScaleOptions options = LossScaler::Dynamic().ToKernelOptions();
  EXPECT_TRUE(options.dynamic);
  EXPECT_EQ(options.initial_scale, 65536.0f);
  EXPECT_EQ(options.window, 1000);
  EXPECT_EQ(options.hysteresis, 2);
  EXPECT_FALSE(options.consecutive_hysteresis);
  EXPECT_EQ(options.min_scale, 1.0f);
  EXPECT_EQ(options.at_minimum, kernels::AtMinimum::kError);
}

TEST(LossScalerTest, PassesEveryFieldOn) {
  const LossScaler scaler = {.loss_scale = 0.0f,
                             .initial_scale_power = 4,
                             .loss_scale_window = 7,
                             .hysteresis = 3,
                             .consecutive_hysteresis = true,
                             .min_loss_scale = 0.5f,
                             .max_loss_scale = 64.0f,
                             .at_minimum = kernels::AtMinimum::kClamp};
  EXPECT_OK(Validate(scaler));
  const kernels::LossScaleOptions options = scaler.ToKernelOptions();
  EXPECT_EQ(options.initial_scale, 16.0f);
  EXPECT_EQ(options.window, 7);
  EXPECT_EQ(options.hysteresis, 3);
  EXPECT_TRUE(options.consecutive_hysteresis);
  EXPECT_EQ(options.min_scale, 0.5f);
  EXPECT_EQ(options.max_scale, 64.0f);
  EXPECT_EQ(options.at_minimum, kernels::AtMinimum::kClamp);
}

TEST(LossScalerTest, BadInputIsNamedWithItsValue) {
  const struct {
    LossScaler scaler;
    const char* text;
  } cases[] = {
      {LossScaler{.loss_scale = -2.0f}, "loss_scale is -2, must be 0 (dynamic) or"},
      {LossScaler{.loss_scale = std::numeric_limits<float>::quiet_NaN()}, "loss_scale is nan"},
      {LossScaler{.loss_scale = std::numeric_limits<float>::infinity()}, "loss_scale is inf"},
      {{.loss_scale = 0, .initial_scale_power = -1}, "initial_scale_power is -1"},
      {{.loss_scale = 0, .max_loss_scale = 1024.0f}, "initial_scale_power is 16"},
      {{.loss_scale_window = 0}, "loss_scale_window is 0, must be 1 or more"},
      {{.hysteresis = 0}, "hysteresis is 0"},
      {{.min_loss_scale = 0.0f}, "min_loss_scale is 0"},
      {{.min_loss_scale = 8.0f, .max_loss_scale = 4.0f}, "max_loss_scale is 4"},
      {{.at_minimum = static_cast<kernels::AtMinimum>(5)}, "at_minimum is 5"},
      {{.loss_scale = 0, .check_overflow = false}, "check_overflow is false, but loss_scale is 0"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Validate(c.scaler),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.text)));
  }
}

}  // namespace
}  // namespace brigade::optim
