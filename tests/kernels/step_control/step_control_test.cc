#include "brigade/kernels/step_control/step_control.h"

#include <limits>
#include <random>
#include <vector>

#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/step_control.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

class StepControlTest : public ::testing::Test {
 protected:
  StepControlTest() : cpu_(OnCpu(1)) {
    options_.betas = betas_;
    options_.lr_table = lr_table_.data();
    options_.lr_table_size = 4;
    Restart();
  }

  void Restart() { state_ = InitialStepState(options_.loss_scale); }

  absl::Status Run(absl::Span<const GradStats> stats) {
    return StepControl(stats, options_, &state_, group_steps_.data(), *cpu_.stream);
  }

  void Step(const std::vector<GradStats>& stats) {
    ASSERT_OK(Run(stats));
    ASSERT_OK(cpu_.stream->Synchronize());
  }

  void StepWithOverflow(bool overflow) {
    Step({{overflow ? std::numeric_limits<double>::infinity() : 1.0, overflow ? 0 : 1}});
  }

  CpuRun cpu_;
  std::vector<StepBetas> betas_ = {{0.9, 0.999}, {0.0, 0.0}};
  std::vector<float> lr_table_ = {1e-3f, 2e-3f, 3e-3f, 4e-3f, 0.5f, 0.25f, 0.125f, 0.0625f};
  std::vector<GroupStep> group_steps_ = std::vector<GroupStep>(2);
  StepState state_;
  StepControlOptions options_;
};

TEST_F(StepControlTest, MovesTheLossScaleAsDeepSpeedsTablesSay) {
  struct Row {
    std::vector<int> overflows;
    std::vector<float> scales;
  };
  options_.loss_scale = {.initial_scale = 256, .window = 2, .hysteresis = 1};
  for (const Row& row : std::vector<Row>{
           {std::vector<int>(10, 0), {256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096}},
           {{1, 1, 0, 0, 0, 1}, {128, 64, 64, 64, 128, 64}},
           {std::vector<int>(8, 1), {128, 64, 32, 16, 8, 4, 2, 1}}}) {
    Restart();
    for (size_t i = 0; i < row.overflows.size(); ++i) {
      StepWithOverflow(row.overflows[i] != 0);
      EXPECT_EQ(state_.loss_scale, row.scales[i]) << "step " << i;
      EXPECT_EQ(state_.skip, row.overflows[i]) << "step " << i;
      EXPECT_EQ(state_.stuck_at_minimum, 0);
    }
  }
  // The ninth overflow of the last row: at the minimum.
  StepWithOverflow(true);
  EXPECT_EQ(state_.loss_scale, 1.0f);
  EXPECT_EQ(state_.stuck_at_minimum, 1);
  const int64_t step = state_.step;
  StepWithOverflow(false);
  EXPECT_EQ(state_.skip, 1) << "a later step must report it";
  EXPECT_EQ(state_.step, step);
}

TEST_F(StepControlTest, GoesOnAtTheMinimumWhenToldToClamp) {
  options_.loss_scale = {.initial_scale = 1, .hysteresis = 1, .at_minimum = AtMinimum::kClamp};
  Restart();
  StepWithOverflow(true);
  EXPECT_EQ(state_.loss_scale, 1.0f);
  EXPECT_EQ(state_.stuck_at_minimum, 0);
  StepWithOverflow(false);
  EXPECT_EQ(state_.skip, 0);
  EXPECT_EQ(state_.step, 1);
}

// Random sequences of overflows and norms under every kind of option, against the specification.
TEST_F(StepControlTest, GivesTheSpecificationsBits) {
  std::mt19937 random(41);
  for (int trial = 0; trial < 300; ++trial) {
    options_.loss_scale = {.dynamic = trial % 7 != 0,
                           .initial_scale = std::ldexp(1.0f, static_cast<int>(random() % 8)),
                           .min_scale = 0.25f,
                           .max_scale = 512.0f,
                           .window = 1 + static_cast<int64_t>(random() % 4),
                           .hysteresis = 1 + static_cast<int32_t>(random() % 3),
                           .consecutive_hysteresis = random() % 2 == 0,
                           .at_minimum = random() % 2 == 0 ? AtMinimum::kError : AtMinimum::kClamp};
    options_.grad_divisor = 1.0 + random() % 5;
    options_.max_grad_norm =
        random() % 3 == 0 ? std::numeric_limits<double>::infinity() : 0.01 * (1 + random() % 300);
    options_.check_overflow = random() % 4 != 0;
    Restart();
    const LossScaleOptions& scale = options_.loss_scale;
    const spec::StepRule rule = {
        .loss_scale = {.dynamic = scale.dynamic,
                       .window = scale.window,
                       .hysteresis = scale.hysteresis,
                       .consecutive_hysteresis = scale.consecutive_hysteresis,
                       .min_scale = scale.min_scale,
                       .max_scale = scale.max_scale,
                       .error_at_minimum = scale.at_minimum == AtMinimum::kError},
        .divisor = options_.grad_divisor,
        .clip = options_.max_grad_norm,
        .check_overflow = options_.check_overflow};
    spec::StepState wanted;
    wanted.loss_scale = scale.initial_scale;
    wanted.hysteresis = scale.hysteresis;
    for (int step = 0; step < 40; ++step) {
      std::vector<GradStats> ranks(1 + random() % 4);
      std::vector<spec::GradStats> spec_ranks;
      for (GradStats& rank : ranks) {
        rank = {std::ldexp(1.0 + random() * 0x1p-32, static_cast<int>(random() % 20)), 1};
        if (random() % 10 == 0) rank = {std::numeric_limits<double>::infinity(), 0};
        spec_ranks.push_back({rank.sum_of_squares, rank.all_finite != 0});
      }
      Step(ranks);
      spec::ControlStep(spec_ranks, rule, wanted);
      ASSERT_EQ(state_.step, wanted.step);
      ASSERT_EQ(state_.iteration, wanted.iteration);
      ASSERT_EQ(state_.last_overflow, wanted.last_overflow);
      ASSERT_EQ(state_.hysteresis, wanted.hysteresis);
      ASSERT_EQ(state_.loss_scale, wanted.loss_scale);
      ASSERT_EQ(state_.skip != 0, wanted.skip);
      ASSERT_EQ(state_.stuck_at_minimum != 0, wanted.stuck_at_minimum);
      ASSERT_TRUE(SameBits(state_.grad_multiplier, wanted.multiplier));
      ASSERT_EQ(std::memcmp(&state_.grad_norm, &wanted.grad_norm, sizeof(double)), 0);
      if (wanted.skip) continue;
      for (int group = 0; group < 2; ++group) {
        const std::vector<float> table(lr_table_.begin() + 4 * group,
                                       lr_table_.begin() + 4 * group + 4);
        const spec::GroupStep g =
            spec::MakeGroupStep(betas_[group].beta1, betas_[group].beta2,
                                spec::LearningRate(table, wanted), wanted.step);
        ASSERT_EQ(group_steps_[group].lr, g.lr);
        ASSERT_EQ(group_steps_[group].step_size, g.step_size);
        ASSERT_EQ(group_steps_[group].inv_sqrt_correction, g.inv_sqrt_correction);
      }
    }
  }
}

TEST_F(StepControlTest, DoesNotAdvanceTheScheduleOnASkippedStep) {
  options_.loss_scale.hysteresis = 10;
  Restart();
  StepWithOverflow(false);
  EXPECT_EQ(group_steps_[0].lr, 1e-3f);
  StepWithOverflow(true);
  EXPECT_EQ(group_steps_[0].lr, 1e-3f);
  StepWithOverflow(false);
  EXPECT_EQ(group_steps_[0].lr, 2e-3f);
  EXPECT_EQ(group_steps_[1].lr, 0.25f);
  for (int i = 0; i < 5; ++i) StepWithOverflow(false);
  EXPECT_EQ(group_steps_[0].lr, 4e-3f) << "the last entry stays";
}

TEST_F(StepControlTest, RejectsEveryBadArray) {
  BadArrays arrays("step_control");
  const GradStats* stats;
  StepState* state;
  GroupStep* group_steps;
  arrays.Add("stats", stats, 3, BadArrays::kRead);
  arrays.Add("state", state, 1, BadArrays::kWritten);
  arrays.Add("group_steps", group_steps, 2, BadArrays::kWritten);
  arrays.Add("lr_table", options_.lr_table, 8, BadArrays::kRead);
  *state = state_;
  arrays.ExpectRefused(*cpu_.stream, [&] {
    return StepControl(absl::MakeConstSpan(stats, 3), options_, state, group_steps, *cpu_.stream);
  });
}

TEST_F(StepControlTest, RejectsOptionsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const StepControlOptions good = options_;
  const std::vector<GradStats> stats = {{1.0, 1}};
  const auto expect = [&](const char* message) {
    EXPECT_THAT(Run(stats), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    options_ = good;
  };
  options_.loss_scale.initial_scale = 0;
  expect("initial_scale is 0");
  options_.loss_scale.initial_scale = 0.5;
  expect("initial_scale is 0.5, must be min_scale to max_scale");
  options_.loss_scale.min_scale = std::nanf("");
  expect("min_scale is nan");
  options_.loss_scale.min_scale = -1;
  expect("min_scale is -1");
  options_.loss_scale.max_scale = 0.5;
  expect("max_scale is 0.5");
  options_.loss_scale.window = 0;
  expect("window is 0");
  options_.loss_scale.hysteresis = 0;
  expect("hysteresis is 0");
  options_.grad_divisor = 0;
  expect("grad_divisor is 0");
  options_.max_grad_norm = nan;
  expect("max_grad_norm is nan");
  options_.lr_table_size = 0;
  expect("lr_table_size is 0");
  options_.lr_table_size = std::numeric_limits<int64_t>::max();
  expect("lr_table_size is 9.22337e+18");
  options_.betas = {};
  expect("there are 0 groups");
  betas_[1].beta2 = 1.0;
  expect("beta2 of group 1 is 1");
  betas_[1].beta2 = 0.0;
  EXPECT_THAT(Run({}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stats has 0 ranks")));
  ASSERT_OK(cpu_.stream->Synchronize());
  EXPECT_EQ(state_.iteration, 0);
}

TEST_F(StepControlTest, SkipsAndChangesNothingElseOnceAFlagIsSet) {
  int32_t flags[kFailureFlags] = {};
  options_.failure_flags = {&flags[0], &flags[1]};
  StepWithOverflow(false);
  EXPECT_EQ(state_.step, 1);
  EXPECT_EQ(state_.skip, 0);
  for (const auto& [first, overflow] :
       {std::pair(true, false), std::pair(true, true), std::pair(false, false)}) {
    flags[0] = first ? 1 : 0;
    flags[1] = first ? 0 : 1;
    const StepState before = state_;
    const std::vector<GroupStep> groups = group_steps_;
    StepWithOverflow(overflow);
    EXPECT_EQ(state_.skip, 1);
    EXPECT_EQ(state_.step, before.step);
    EXPECT_EQ(state_.iteration, before.iteration);
    EXPECT_EQ(state_.loss_scale, before.loss_scale);
    EXPECT_EQ(state_.hysteresis, before.hysteresis);
    EXPECT_EQ(state_.grad_norm, before.grad_norm);
    EXPECT_EQ(group_steps_[0].step_size, groups[0].step_size);
  }
}

}  // namespace
}  // namespace brigade::kernels
