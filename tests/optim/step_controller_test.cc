#include "brigade/optim/step_controller.h"

#include <chrono>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

using ::brigade::testing::StatusIs;
using kernels::StepState;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class StepControllerTest : public ::testing::Test {
 protected:
  static LossScaler Scaler(int power, int64_t window, kernels::AtMinimum at_minimum = {}) {
    return {.loss_scale = 0,
            .initial_scale_power = power,
            .loss_scale_window = window,
            .hysteresis = 1,
            .at_minimum = at_minimum};
  }

  void Create(const OptimizerOptions& optimizer, const StepControllerOptions& options) {
    auto created = StepController::Create(optimizer, options, *context_, *stream_);
    ASSERT_OK(created);
    controller_ = *std::move(created);
  }

  // One step with gradients of this sum of squares; not finite: an overflow.
  void Decide(double sum_of_squares) {
    const kernels::GradStats stats = {sum_of_squares, sum_of_squares < kInfinity ? 1 : 0};
    for (kernels::GradStats& rank : controller_->stats()) {
      ASSERT_OK(stream_->Copy(&rank, &stats, sizeof(stats)));
    }
    ASSERT_OK(controller_->Decide(*stream_));
    ASSERT_OK(stream_->Synchronize());
  }

  StepState State() { return controller_->SaveState(*stream_).value(); }
  float LearningRate(int group) { return controller_->group_steps()[group].lr; }

  // The scale after each step of a sequence, 1 being an overflow; -1 once stuck.
  std::vector<float> Scales(const LossScaler& scaler, const std::vector<int>& overflows) {
    Create({}, {.loss_scaler = scaler});
    std::vector<float> scales;
    for (const int overflow : overflows) {
      Decide(overflow == 1 ? kInfinity : 1.0);
      const StepState state = State();
      EXPECT_TRUE(overflow == 0 || state.skip == 1);
      scales.push_back(state.stuck_at_minimum == 1 ? -1.0f : state.loss_scale);
    }
    return scales;
  }

  std::unique_ptr<device::Context> context_ =
      device::Context::Create({.compute_threads = 1}).value();
  std::unique_ptr<device::Stream> stream_ = context_->CreateStream("compute").value();
  std::unique_ptr<StepController> controller_;
};

TEST_F(StepControllerTest, MovesTheLossScaleAsDeepSpeedDoes) {
  EXPECT_EQ(Scales(Scaler(8, 2), std::vector<int>(10, 0)),
            (std::vector<float>{256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096}));
  EXPECT_EQ(Scales(Scaler(8, 2), {1, 1, 0, 0, 0, 1}),
            (std::vector<float>{128, 64, 64, 64, 128, 64}));
  EXPECT_EQ(Scales(Scaler(8, 1000), std::vector<int>(9, 1)),
            (std::vector<float>{128, 64, 32, 16, 8, 4, 2, 1, -1}));
  EXPECT_EQ(Scales(Scaler(1, 1000, kernels::AtMinimum::kClamp), std::vector<int>(4, 1)),
            (std::vector<float>{1, 1, 1, 1}));
  LossScaler limited = Scaler(2, 1);
  limited.max_loss_scale = 8.0f;
  EXPECT_EQ(Scales(limited, std::vector<int>(5, 0)), (std::vector<float>{4, 8, 8, 8, 8}));
  EXPECT_EQ(Scales(LossScaler{.loss_scale = 64.0f}, {1, 0, 1}), (std::vector<float>{64, 64, 64}));
}

TEST_F(StepControllerTest, AddsRanksUnscalesAndClips) {
  Create(
      {},
      {.loss_scaler = {.loss_scale = 4.0f}, .max_grad_norm = 1.0, .grad_divisor = 2.0, .ranks = 4});
  Decide(16.0 * 16.0);  // a norm of 32 over 4 ranks, 4 unscaled
  const StepState state = State();
  EXPECT_EQ(state.grad_norm, 4.0);
  EXPECT_EQ(state.grad_multiplier, static_cast<float>(1.0 / (4.0 + 1e-6) / 8.0));
  EXPECT_EQ(state.step, 1);
}

TEST_F(StepControllerTest, OverflowsAreNotLookedAtIfTheScalerSaysSo) {
  Create({}, {.loss_scaler = {.check_overflow = false}});
  Decide(kInfinity);
  EXPECT_EQ(State().skip, 0);
  EXPECT_EQ(State().step, 1);
}

TEST_F(StepControllerTest, SkippedStepsDoNotAdvanceTheSchedulesOfAnyGroup) {
  const WarmupLR warmup = {.warmup_num_steps = 4, .warmup_type = WarmupType::kLinear};
  Create({.groups = {{.lr = 8.0, .schedule = warmup}, {.lr = 3.0}}},
         {.loss_scaler = {.loss_scale = 1.0f}});
  std::vector<float> rates;
  for (const double sum : {1.0, 1.0, 1.0, kInfinity, kInfinity, 1.0, kInfinity, 1.0, 1.0, 1.0}) {
    Decide(sum);
    if (sum == 1.0) rates.push_back(LearningRate(0));
    EXPECT_EQ(LearningRate(1), 3.0f);
  }
  EXPECT_EQ(rates, (std::vector<float>{0, 0, 2, 4, 6, 8, 8}));
  EXPECT_EQ(State().iteration, 10);
}

TEST_F(StepControllerTest, BiasCorrectionsAreTheGroupsOwn) {
  Create({.groups = {{.lr = 1.0, .beta1 = 0.5, .beta2 = 0.75}, {.lr = 1.0, .beta1 = 0.75}}}, {});
  Decide(1.0);
  EXPECT_EQ(controller_->group_steps()[0].step_size, 2.0f);
  EXPECT_EQ(controller_->group_steps()[0].inv_sqrt_correction, 2.0f);
  EXPECT_EQ(controller_->group_steps()[1].step_size, 4.0f);
  Create({.kind = OptimizerKind::kLamb, .groups = {{.lr = 1.0, .beta1 = 0.5, .beta2 = 0.75}}}, {});
  Decide(1.0);
  EXPECT_EQ(controller_->group_steps()[0].step_size, 2.0f);
  EXPECT_EQ(controller_->group_steps()[0].inv_sqrt_correction, 2.0f);
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kLion}) {
    Create({.kind = kind, .groups = {{.lr = 1.0, .beta1 = 0.5}}}, {});
    Decide(1.0);
    EXPECT_EQ(controller_->group_steps()[0].step_size, 1.0f);
  }
}

TEST_F(StepControllerTest, LearningRatesChangeFromTheNextStepOn) {
  const WarmupLR warmup = {.warmup_num_steps = 2, .warmup_type = WarmupType::kLinear};
  Create({.groups = {{.lr = 1.0}, {.lr = 4.0, .schedule = warmup}}}, {});
  Decide(1.0);
  Decide(1.0);
  // The third update is in the middle of the warm-up.
  for (const double lr : {7.0, 9.0, 10.0}) {
    ASSERT_OK(controller_->SetLearningRate(1, lr, *stream_));
  }
  Decide(1.0);
  EXPECT_EQ(LearningRate(0), 1.0f);
  EXPECT_EQ(LearningRate(1), 5.0f);
  // Another schedule goes on at the fourth.
  ASSERT_OK(controller_->SetSchedule(0, 0.0,
                                     OneCycle{.cycle_min_lr = 0,
                                              .cycle_max_lr = 1,
                                              .cycle_first_step_size = 1,
                                              .cycle_second_step_size = 2},
                                     *stream_));
  ASSERT_OK(controller_->SetSchedule(1, 2.0, ConstantLR(), *stream_));
  Decide(1.0);
  EXPECT_EQ(LearningRate(0), 0.0f);
  EXPECT_EQ(LearningRate(1), 2.0f);
  EXPECT_THAT(controller_->SetLearningRate(0, 1.0, *stream_),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(StepControllerTest, AThirdChangeWaitsForTheFirstAndSpoilsNone) {
  Create({.groups = std::vector<ParameterGroup>(3)}, {});
  ASSERT_OK(stream_->Synchronize());
  const int64_t waits = context_->host_waits();
  device::Gate gate;
  ASSERT_OK(device::Block(*stream_, gate));
  ASSERT_OK(controller_->SetLearningRate(0, 1.0, *stream_));
  ASSERT_OK(controller_->SetLearningRate(1, 2.0, *stream_));
  EXPECT_EQ(context_->host_waits(), waits);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate.Open();
  });
  ASSERT_OK(controller_->SetLearningRate(2, 3.0, *stream_));
  opener.join();
  EXPECT_EQ(context_->host_waits(), waits + 1);
  Decide(1.0);
  EXPECT_EQ(LearningRate(0), 1.0f);
  EXPECT_EQ(LearningRate(1), 2.0f);
  EXPECT_EQ(LearningRate(2), 3.0f);
}

TEST_F(StepControllerTest, RatesThatCannotChangeAreRefusedAndStay) {
  Create({.groups = {{.lr = 1.0},
                     {.schedule = WarmupLR{.warmup_max_lr = 1.0, .warmup_num_steps = 2}}}},
         {.lr_table_size = 5});
  EXPECT_THAT(controller_->SetLearningRate(2, 1.0, *stream_),
              StatusIs(kInvalid, HasSubstr("group is 2, must be 0 to 1")));
  EXPECT_THAT(controller_->SetSchedule(-1, 1.0, ConstantLR(), *stream_),
              StatusIs(kInvalid, HasSubstr("group is -1")));
  EXPECT_THAT(controller_->SetLearningRate(0, -1.0, *stream_),
              StatusIs(kInvalid, HasSubstr("lr of group 0 is -1")));
  EXPECT_THAT(
      controller_->SetLearningRate(1, 0.5, *stream_),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("schedule of group 1 names its own learning rates, so that lr 0.5")));
  EXPECT_THAT(
      controller_->SetSchedule(0, 1.0, WarmupDecayLR(), *stream_),
      StatusIs(kInvalid, HasSubstr("schedule of group 0: WarmupDecayLR: total_num_steps is 0")));
  EXPECT_THAT(
      controller_->SetSchedule(0, 1.0, WarmupLR{.warmup_num_steps = 4}, *stream_),
      StatusIs(kInvalid, HasSubstr("group 0 has 6 learning rates, but lr_table_size is 5")));
  Decide(1.0);
  EXPECT_EQ(LearningRate(0), 1.0f);
  ASSERT_OK(controller_->SetLearningRate(0, 2.0, *stream_));
  ASSERT_OK(controller_->SetSchedule(0, 2.0, WarmupLR{.warmup_num_steps = 3}, *stream_));
}

TEST_F(StepControllerTest, TheRatesInForceCanBeReadAndSetAgain) {
  const OptimizerOptions optimizer = {.groups = {{.lr = 1.0, .weight_decay = 0.5}, {.lr = 2.0}}};
  const StepControllerOptions options = {.lr_table_size = 8};
  Create(optimizer, options);
  EXPECT_EQ(controller_->group(0).lr, 1.0);
  ASSERT_OK(controller_->SetLearningRate(0, 0.25, *stream_));
  ASSERT_OK(controller_->SetSchedule(1, 4.0, WarmupLR{.warmup_max_lr = 8.0, .warmup_num_steps = 4},
                                     *stream_));
  EXPECT_FALSE(controller_->SetLearningRate(0, -1.0, *stream_).ok());
  const ParameterGroup first = controller_->group(0), second = controller_->group(1);
  EXPECT_EQ(first.lr, 0.25);
  EXPECT_EQ(first.weight_decay, 0.5);
  EXPECT_EQ(second.lr, 4.0);
  std::vector<float> rates;
  for (int step = 0; step < 4; ++step) {
    Decide(1.0);
    rates.push_back(LearningRate(0));
    rates.push_back(LearningRate(1));
  }
  Create(optimizer, options);
  ASSERT_OK(controller_->SetSchedule(0, first.lr, first.schedule, *stream_));
  ASSERT_OK(controller_->SetSchedule(1, second.lr, second.schedule, *stream_));
  for (size_t i = 0; i < rates.size(); i += 2) {
    Decide(1.0);
    EXPECT_EQ(LearningRate(0), rates[i]);
    EXPECT_EQ(LearningRate(1), rates[i + 1]);
  }
}

TEST_F(StepControllerTest, BadOptionsAreNamedWithTheirValue) {
  const struct {
    StepControllerOptions options;
    const char* text;
  } cases[] = {
      {{.loss_scaler = {.hysteresis = 0}}, "hysteresis is 0"},
      {{.max_grad_norm = -1.0}, "max_grad_norm is -1, must be positive; infinity for none"},
      {{.grad_divisor = kInfinity}, "grad_divisor is inf"},
      {{.ranks = 0}, "ranks is 0, must be 1 or more"},
      {{.lr_table_size = 0}, "lr_table_size is 0"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(StepController::Create({}, c.options, *context_, *stream_),
                StatusIs(kInvalid, HasSubstr(c.text)));
  }
  EXPECT_THAT(StepController::Create({.groups = {}}, {}, *context_, *stream_),
              StatusIs(kInvalid, HasSubstr("0 groups")));
  EXPECT_EQ(context_->memory_stats().peak_bytes(), 0);
}

TEST_F(StepControllerTest, ScalesTheLossByTheScaleOnTheDevice) {
  Create({}, {.loss_scaler = Scaler(3, 1)});
  const std::vector<float> loss = {1.5f, -0.25f};
  std::vector<float> scaled(2);
  const precision::Half half(0.5f);
  precision::Half scaled_half;
  Decide(1.0);
  Decide(1.0);  // the scale grows to 16
  ASSERT_OK(
      controller_->ScaleLoss(loss.data(), scaled.data(), 2, precision::DType::kFloat32, *stream_));
  ASSERT_OK(controller_->ScaleLoss(&half, &scaled_half, 1, precision::DType::kFloat16, *stream_));
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(scaled, (std::vector<float>{24.0f, -4.0f}));
  EXPECT_EQ(static_cast<float>(scaled_half), 8.0f);
}

TEST_F(StepControllerTest, StatesAreReadInOrderWithoutWaiting) {
  Create({}, {});
  EXPECT_EQ(controller_->TakeState().value(), std::nullopt);
  const int64_t waits = context_->host_waits();
  for (int i = 0; i < StepController::kReads; ++i) {
    ASSERT_OK(controller_->Decide(*stream_));
    ASSERT_OK(controller_->RequestState(*stream_));
  }
  EXPECT_THAT(controller_->RequestState(*stream_),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("16 requested states")));
  EXPECT_EQ(context_->host_waits(), waits);
  ASSERT_OK(stream_->Synchronize());
  for (int i = 1; i <= StepController::kReads; ++i) {
    EXPECT_EQ(controller_->TakeState().value().value().iteration, i);
  }
  EXPECT_EQ(controller_->TakeState().value(), std::nullopt);
  ASSERT_OK(controller_->RequestState(*stream_));
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(controller_->TakeState().value().value().iteration, 16);
}

}  // namespace
}  // namespace brigade::optim
