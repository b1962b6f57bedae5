// Schedules against the formulas of DeepSpeed 0.19.0, written from how its classes behave step by
// step: they set a rate when constructed, and another in each step(), which follows an update.

#include "brigade/optim/schedule.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr double kGroupRate = 0.03;

// What DeepSpeed sets the rate to: at construction, and in step() number `iteration` from 0 on.
struct DeepSpeed {
  double at_construction;
  std::function<double(int64_t iteration)> in_step;

  // update 1 runs with the first, update 2 after step() number 0, ...
  double Rate(int64_t update) const { return update == 1 ? at_construction : in_step(update - 2); }
};

double WarmupGamma(bool log, int64_t iteration, double steps) {
  return log ? 1.0 / std::log(steps) * std::log(iteration + 1.0) : iteration / steps;
}

// A float's rounding, and as much again for the order of operations in double.
void ExpectTable(const Schedule& schedule, const DeepSpeed& wanted, int64_t updates) {
  ASSERT_OK(Validate(schedule));
  const std::vector<float> rates = LearningRates(schedule, kGroupRate);
  ASSERT_GE(updates, static_cast<int64_t>(rates.size()));
  for (int64_t update = 1; update <= updates; ++update) {
    const size_t entry = std::min<size_t>(update, rates.size()) - 1;
    const double rate = wanted.Rate(update);
    EXPECT_NEAR(rates[entry], rate, 0x1p-23 * rate + 1e-18) << "update " << update;
  }
}

TEST(ScheduleTest, ConstantIsTheGroupsRate) {
  EXPECT_EQ(LearningRates(ConstantLR(), 0.1), std::vector<float>{0.1f});
}

TEST(ScheduleTest, WarmupLRRisesToItsMaximumAndStays) {
  for (const bool log : {true, false}) {
    for (const int64_t steps : {1, 2, 3, 100}) {
      const double n = steps == 1 ? 2.0 : static_cast<double>(steps);
      const auto wanted = [&](double max) {
        return DeepSpeed{0.01, [=](int64_t iteration) {
                           const double gamma =
                               iteration < n ? WarmupGamma(log, iteration, n) : 1.0;
                           return 0.01 + (max - 0.01) * gamma;
                         }};
      };
      WarmupLR schedule = {.warmup_min_lr = 0.01,
                           .warmup_max_lr = 0.5,
                           .warmup_num_steps = steps,
                           .warmup_type = log ? WarmupType::kLog : WarmupType::kLinear};
      ExpectTable(schedule, wanted(0.5), steps + 20);
      schedule.warmup_max_lr = {};
      ExpectTable(schedule, wanted(kGroupRate), steps + 20);
    }
  }
}

TEST(ScheduleTest, WarmupLRHasDeepSpeedsDefaults) {
  const std::vector<float> rates = LearningRates(WarmupLR(), 0.25);
  ASSERT_EQ(rates.size(), 1002u);
  EXPECT_EQ(rates[0], 0.0f);
  EXPECT_EQ(rates[1], 0.0f);
  EXPECT_EQ(rates[2], static_cast<float>(0.25 * std::log(2.0) / std::log(1000.0)));
  EXPECT_EQ(rates[1001], 0.25f);
}

TEST(ScheduleTest, WarmupDecayLRFallsToZeroAtTheTotal) {
  for (const bool log : {true, false}) {
    for (const int64_t total : {3, 10, 11, 40}) {
      const WarmupDecayLR schedule = {.total_num_steps = total,
                                      .warmup_min_lr = 0.002,
                                      .warmup_max_lr = 0.2,
                                      .warmup_num_steps = 10,
                                      .warmup_type = log ? WarmupType::kLog : WarmupType::kLinear};
      const DeepSpeed wanted = {0.002, [=](int64_t iteration) {
                                  double gamma = WarmupGamma(log, iteration, 10.0);
                                  if (iteration >= 10) {
                                    gamma = std::max(
                                        0.0, (total - iteration) / std::max(1.0, total - 10.0));
                                  }
                                  return 0.002 + 0.198 * gamma;
                                }};
      ExpectTable(schedule, wanted, 60);
    }
  }
}

TEST(ScheduleTest, WarmupCosineLRFallsToItsMinimumAndStaysThere) {
  for (const bool log : {true, false}) {
    const WarmupCosineLR schedule = {.total_num_steps = 50,
                                     .warmup_min_ratio = 0.1,
                                     .warmup_num_steps = 8,
                                     .cos_min_ratio = 0.01,
                                     .warmup_type = log ? WarmupType::kLog : WarmupType::kLinear};
    const DeepSpeed wanted = {
        0.0, [=](int64_t iteration) {
          double ratio = 0.1 + 0.9 * WarmupGamma(log, iteration, 8.0);
          if (iteration >= 8) {
            const double progress = std::min(1.0, (iteration - 7.0) / 42.0);
            ratio = 0.01 + 0.99 * (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
          }
          return kGroupRate * ratio;
        }};
    ExpectTable(schedule, wanted, 70);
  }
}

TEST(ScheduleTest, WarmupCosineLRWithoutRoomForTheCosineEndsAtItsMinimum) {
  const std::vector<float> rates =
      LearningRates(WarmupCosineLR{.total_num_steps = 4, .warmup_num_steps = 4}, 1.0);
  ASSERT_EQ(rates.size(), 6u);
  EXPECT_EQ(rates[4], static_cast<float>(std::log(4.0) / std::log(4.0)));
  EXPECT_EQ(rates[5], 0.0001f);
}

TEST(ScheduleTest, OneCycleRisesFallsAndDecays) {
  for (const int64_t second : {5, 6, 12}) {
    for (const bool decay : {true, false}) {
      OneCycle schedule = {.cycle_min_lr = 0.01,
                           .cycle_max_lr = 0.1,
                           .cycle_first_step_size = 6,
                           .cycle_second_step_size = second,
                           .total_num_steps = 40};
      if (second == 6) schedule.cycle_second_step_size = {};
      if (decay) schedule.decay_lr_rate = 0.5, schedule.decay_step_size = 3;
      const double size = 6.0 + static_cast<double>(second);
      const double ratio = 6.0 / size;
      const DeepSpeed wanted = {0.01, [=](int64_t last) {
                                  if (last >= size) {
                                    const double interval = (last - size + 1.0) / 3.0;
                                    return decay ? 0.01 / (1.0 + 0.5 * interval) : 0.01;
                                  }
                                  const double position = (last + 1.0) / size;
                                  const double x = 1.0 + position - std::floor(1.0 + position);
                                  const double factor =
                                      x <= ratio ? x / ratio : (x - 1.0) / (ratio - 1.0);
                                  return 0.01 + 0.09 * factor;
                                }};
      ExpectTable(schedule, wanted, 40);
      EXPECT_EQ(LearningRateCount(schedule), decay ? 40 : size + 1);
    }
  }
}

TEST(ScheduleTest, ALongerTableRepeatsTheLastEntry) {
  std::vector<float> table(6, -1.0f);
  FillLearningRates(WarmupLR{.warmup_num_steps = 2, .warmup_type = WarmupType::kLinear}, 4.0,
                    absl::MakeSpan(table));
  EXPECT_EQ(table, (std::vector<float>{0.0f, 0.0f, 2.0f, 4.0f, 4.0f, 4.0f}));
}

TEST(ScheduleTest, SaysWhetherTheGroupsRateHasAPart) {
  EXPECT_TRUE(UsesGroupRate(ConstantLR()));
  EXPECT_TRUE(UsesGroupRate(WarmupLR()));
  EXPECT_FALSE(UsesGroupRate(WarmupLR{.warmup_max_lr = 0.1}));
  EXPECT_FALSE(UsesGroupRate(WarmupDecayLR()));
  EXPECT_TRUE(UsesGroupRate(WarmupCosineLR()));
  EXPECT_FALSE(UsesGroupRate(OneCycle()));
}

TEST(ScheduleTest, BadInputIsNamedWithItsValue) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    Schedule schedule;
    const char* text;
  } cases[] = {
      {WarmupLR{.warmup_min_lr = -1.0}, "WarmupLR: warmup_min_lr is -1"},
      {WarmupLR{.warmup_max_lr = nan}, "WarmupLR: warmup_max_lr is nan"},
      {WarmupLR{.warmup_num_steps = 0}, "WarmupLR: warmup_num_steps is 0, must be in [1, 2^24]"},
      {WarmupLR{.warmup_type = static_cast<WarmupType>(7)}, "WarmupLR: warmup_type is 7"},
      {WarmupDecayLR{}, "WarmupDecayLR: total_num_steps is 0"},
      {WarmupDecayLR{.total_num_steps = 10, .warmup_min_lr = nan}, "warmup_min_lr is nan"},
      {WarmupDecayLR{.total_num_steps = 10, .warmup_max_lr = -2}, "warmup_max_lr is -2"},
      {WarmupDecayLR{.total_num_steps = 10, .warmup_num_steps = -3}, "warmup_num_steps is -3"},
      {WarmupDecayLR{.total_num_steps = 10, .warmup_type = static_cast<WarmupType>(7)},
       "WarmupDecayLR: warmup_type is 7"},
      {WarmupCosineLR{.total_num_steps = 1 << 25}, "total_num_steps is 3.35544e+07"},
      {WarmupCosineLR{.total_num_steps = 10, .warmup_min_ratio = nan}, "warmup_min_ratio is nan"},
      {WarmupCosineLR{.total_num_steps = 10, .warmup_num_steps = 0}, "warmup_num_steps is 0"},
      {WarmupCosineLR{.total_num_steps = 10, .cos_min_ratio = -1}, "cos_min_ratio is -1"},
      {WarmupCosineLR{.total_num_steps = 10, .warmup_type = static_cast<WarmupType>(7)},
       "WarmupCosineLR: warmup_type is 7"},
      {OneCycle{.cycle_min_lr = -1}, "OneCycle: cycle_min_lr is -1"},
      {OneCycle{.cycle_max_lr = nan}, "OneCycle: cycle_max_lr is nan"},
      {OneCycle{.decay_lr_rate = -1}, "OneCycle: decay_lr_rate is -1"},
      {OneCycle{.cycle_first_step_size = 0}, "cycle_first_step_size is 0"},
      {OneCycle{.cycle_second_step_size = 0}, "cycle_second_step_size is 0"},
      {OneCycle{.decay_step_size = -1}, "decay_step_size is -1"},
      {OneCycle{.total_num_steps = -1}, "total_num_steps is -1"},
      {OneCycle{.decay_lr_rate = 1, .decay_step_size = 1}, "total_num_steps is 0, must be in [1,"},
      {OneCycle{.cycle_momentum = true}, "cycle_momentum is true, must be false"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Validate(c.schedule),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.text)));
  }
}

}  // namespace
}  // namespace brigade::optim
