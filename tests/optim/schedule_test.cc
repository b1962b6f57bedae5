// Schedules against the formulas of DeepSpeed 0.19.0, written from how its classes behave step by
// step: they set a rate when constructed, and another in each step(), which follows an update.
// Those of transformers against values that release 4.57.3 itself has computed, and its formulas.

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

TEST(ScheduleTest, LRRangeTestRisesToTheEndOfItsTable) {
  for (const bool staircase : {true, false}) {
    const LRRangeTest schedule = {.lr_range_test_min_lr = 0.004,
                                  .lr_range_test_step_size = 6,
                                  .lr_range_test_step_rate = 1.5,
                                  .lr_range_test_staircase = staircase,
                                  .total_num_steps = 40};
    const DeepSpeed wanted = {0.004, [=](int64_t last) {
                                const double interval = (last + 1.0) / 6.0;
                                const double counted = staircase ? std::floor(interval) : interval;
                                return 0.004 * (1.0 + 1.5 * counted);
                              }};
    ExpectTable(schedule, wanted, 40);
  }
}

// What LambdaLR of PyTorch has with transformers' factors, step by step, as nine digits say it.
TEST(ScheduleTest, HasTheRatesOfTransformers) {
  const struct {
    Schedule schedule;
    std::vector<double> rates;
  } cases[] = {
      {ConstantWithWarmup{3}, {0, 0.01, 0.02, 0.03, 0.03}},
      {LinearWithWarmup{3, 10},
       {0, 0.01, 0.02, 0.03, 0.0257142857, 0.0214285714, 0.0171428571, 0.0128571429, 0.00857142857,
        0.00428571429, 0, 0}},
      {CosineWithWarmup{3, 10},
       {0, 0.01, 0.02, 0.03, 0.028514533, 0.024352347, 0.018337814, 0.011662186, 0.00564765297,
        0.00148546698, 0}},
      {CosineWithWarmup{3, 10, 1.25},
       {0, 0.01, 0.02, 0.03, 0.0215082561, 0.00564765297, 0.000376081317, 0.011662186, 0.0267274722,
        0.028514533, 0.015}},
      {CosineWithWarmup{3, 10, 0.5, 0.1},
       {0, 0.01, 0.02, 0.03, 0.0286630797, 0.0249171123, 0.0195040326, 0.0134959674, 0.00808288767,
        0.00433692028, 0.003}},
      {CosineWithRestarts{2, 10, 2},
       {0, 0.015, 0.03, 0.0256066017, 0.015, 0.00439339828, 0.03, 0.0256066017, 0.015,
        0.00439339828, 0, 0}},
      {PolynomialDecay{2, 8, 1e-3, 2.0},
       {0, 0.015, 0.03, 0.0211388889, 0.0138888889, 0.00825, 0.00422222222, 0.00180555556, 0.001,
        0.001, 0.001}},
      {InverseSqrt{3, 8},
       {0, 0.01, 0.02, 0.03, 0.0259807621, 0.0232379001, 0.0212132034, 0.0196396101}},
      {InverseSqrt{3, 8, 7},
       {0, 0.01, 0.02, 0.03, 0.0280624304, 0.0264575131, 0.0250998008, 0.0239317211}},
      {WarmupStableDecay{3, 10, 4, RampType::kLinear, RampType::kLinear, 0.1},
       {0.003, 0.012, 0.021, 0.03, 0.03, 0.03, 0.03, 0.02325, 0.0165, 0.00975, 0.003, 0.003}},
      {WarmupStableDecay{3, 10, 4, RampType::kCosine, RampType::kCosine, 0.1},
       {0.003, 0.00975, 0.02325, 0.03, 0.03, 0.03, 0.03, 0.0260459415, 0.0165, 0.00695405845, 0.003,
        0.003}},
      {WarmupStableDecay{3, 10, 4, RampType::kOneMinusSqrt, RampType::kOneMinusSqrt, 0.1},
       {0.003, 0.00795459231, 0.0144115427, 0.03, 0.03, 0.03, 0.03, 0.0165, 0.0109081169,
        0.0066173141, 0.003, 0.003}},
  };
  for (size_t c = 0; c < std::size(cases); ++c) {
    SCOPED_TRACE(c);
    ASSERT_OK(Validate(cases[c].schedule, kGroupRate));
    EXPECT_TRUE(UsesGroupRate(cases[c].schedule));
    std::vector<float> table(cases[c].rates.size());
    ASSERT_LE(LearningRateCount(cases[c].schedule), static_cast<int64_t>(table.size()));
    FillLearningRates(cases[c].schedule, kGroupRate, absl::MakeSpan(table));
    for (size_t i = 0; i < table.size(); ++i) {
      EXPECT_NEAR(table[i], cases[c].rates[i], 2e-9) << "update " << i + 1;
    }
  }
}

// Its formulas, with the phases in all orders of length, a warm-up as long as the training and
// longer among them.
TEST(ScheduleTest, HasTheFormulasOfTransformersInDouble) {
  constexpr double kPi = std::numbers::pi;
  const auto expect = [](const Schedule& schedule, const std::function<double(int64_t)>& factor,
                         int64_t steps) {
    ASSERT_OK(Validate(schedule, kGroupRate));
    const std::vector<float> rates = LearningRates(schedule, kGroupRate);
    for (int64_t step = 0; step < steps; ++step) {
      const double rate = kGroupRate * factor(step);
      const size_t entry = std::min<size_t>(static_cast<size_t>(step), rates.size() - 1);
      EXPECT_NEAR(rates[entry], rate, 0x1p-23 * rate + 1e-17) << "step " << step;
    }
  };
  for (const int64_t warmup : {0, 1, 2, 7, 29, 30, 31, 33}) {
    const int64_t total = 30;
    SCOPED_TRACE(warmup);
    const auto rise = [=](const std::function<double(double)>& fall) {
      return [=](int64_t step) {
        const auto at = static_cast<double>(step), w = static_cast<double>(warmup);
        return at < w ? at / std::max(1.0, w) : fall(at);
      };
    };
    const double w = static_cast<double>(warmup);
    const auto progress = [=](double at) { return (at - w) / std::max(1.0, 30.0 - w); };
    expect(LinearWithWarmup{warmup, total},
           rise([=](double at) { return std::max(0.0, (30.0 - at) / std::max(1.0, 30.0 - w)); }),
           40);
    // Beyond the end transformers' cosine rises again.
    expect(CosineWithWarmup{warmup, total, 0.5, 0.2},
           rise([=](double at) { return 0.2 + 0.8 * 0.5 * (1.0 + std::cos(kPi * progress(at))); }),
           std::max(total, warmup + 1) + 1);
    expect(CosineWithRestarts{warmup, total, 3}, rise([=](double at) {
             const double x = 3.0 * progress(at);
             return progress(at) >= 1.0 ? 0.0 : 0.5 * (1.0 + std::cos(kPi * std::fmod(x, 1.0)));
           }),
           40);
    if (warmup != total) {
      expect(PolynomialDecay{warmup, total, 0.001, 1.5}, rise([=](double at) {
               const double end = 0.001 / kGroupRate;
               if (at > 30.0) return end;
               return end + (1.0 - end) * std::pow(1.0 - (at - w) / (30.0 - w), 1.5);
             }),
             40);
    }
    const double scale = warmup == 0 ? 10000.0 : w;
    expect(InverseSqrt{warmup, total},
           rise([=](double at) { return 1.0 / std::sqrt((at + scale - w) / scale); }),
           std::max(total, warmup + 1));
    expect(ConstantWithWarmup{warmup}, rise([](double) { return 1.0; }), 40);
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
  EXPECT_FALSE(UsesGroupRate(LRRangeTest()));
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
      {LRRangeTest{}, "LRRangeTest: total_num_steps is 0"},
      {LRRangeTest{.lr_range_test_min_lr = nan}, "lr_range_test_min_lr is nan"},
      {LRRangeTest{.lr_range_test_step_size = 0}, "lr_range_test_step_size is 0"},
      {LRRangeTest{.lr_range_test_step_rate = -1}, "lr_range_test_step_rate is -1"},
      {LRRangeTest{.lr_range_test_step_size = 1,
                   .lr_range_test_step_rate = 3e38,
                   .total_num_steps = 1 << 24},
       "LRRangeTest: the last rate is "},
      {ConstantWithWarmup{-1}, "constant_with_warmup: num_warmup_steps is -1"},
      {LinearWithWarmup{}, "linear: num_training_steps is 0, must be in [1, 2^24]"},
      {LinearWithWarmup{-1, 5}, "linear: num_warmup_steps is -1"},
      {CosineWithWarmup{1, 5, nan}, "cosine: num_cycles is nan"},
      {CosineWithWarmup{1, 5, 0.5, 1.5}, "cosine: min_lr_rate is 1.5, must be in [0, 1]"},
      {CosineWithRestarts{1, 5, 0}, "cosine_with_restarts: num_cycles is 0"},
      {PolynomialDecay{1, 5, -1.0}, "polynomial: lr_end is -1"},
      {PolynomialDecay{1, 5, 0.0, 0.0}, "polynomial: power is 0"},
      {InverseSqrt{1, 5, 0}, "inverse_sqrt: timescale is 0"},
      {WarmupStableDecay{1, 5, 0}, "warmup_stable_decay: num_decay_steps is 0"},
      {WarmupStableDecay{1, 5, 5}, "num_training_steps is 5, fewer than the 1 of num_warmup_steps"},
      {WarmupStableDecay{1, 5, 2, static_cast<RampType>(7)}, "warmup_type is 7"},
      {WarmupStableDecay{1, 5, 2, RampType::kLinear, static_cast<RampType>(7)}, "decay_type is 7"},
      {WarmupStableDecay{1, 5, 2, RampType::kLinear, RampType::kLinear, 2.0}, "min_lr_ratio is 2"},
      {WarmupStableDecay{1, 5, 2, RampType::kLinear, RampType::kLinear, 0.0, -1}, "num_cycles is"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Validate(c.schedule),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.text)));
  }
  EXPECT_OK(Validate(PolynomialDecay{1, 5, 0.5}, 0.5));
  EXPECT_THAT(Validate(PolynomialDecay{1, 5, 0.5}, 0.25),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "polynomial: lr_end is 0.5, must be at most the group's rate, 0.25"));
}

}  // namespace
}  // namespace brigade::optim
