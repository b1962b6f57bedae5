// The loss scale of a MixedPrecisionOptimizer from step to step.

#include <limits>
#include <memory>
#include <vector>

#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/optim/training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One element, whose gradient the test sets.
class LossScaleTest : public ::testing::Test {
 protected:
  void Create(const LossScaler& scaler) {
    trainer_ = std::make_unique<Trainer>(
        Training({{1, 0, DType::kFloat16, DType::kFloat32}}, {.loss_scaler = scaler}, 1),
        device::CpuOptions());
  }

  // The state after a step with an overflow or without.
  kernels::StepState Step(bool overflow) {
    trainer_->grads[0].as<float>()[0] = overflow ? kInfinity : 1.0f;
    EXPECT_OK(trainer_->optimizer->Step(*trainer_->stream));
    EXPECT_OK(trainer_->optimizer->RequestState(*trainer_->stream));
    EXPECT_OK(trainer_->stream->Synchronize());
    return trainer_->optimizer->TakeState().value().value();
  }

  std::vector<float> Scales(const LossScaler& scaler, const std::vector<bool>& overflows) {
    Create(scaler);
    std::vector<float> scales;
    for (const bool overflow : overflows) scales.push_back(Step(overflow).loss_scale);
    return scales;
  }

  std::unique_ptr<Trainer> trainer_;
};

TEST_F(LossScaleTest, FollowsDeepSpeedsSequences) {
  LossScaler scaler = {
      .loss_scale = 0, .initial_scale_power = 8, .loss_scale_window = 2, .hysteresis = 1};
  EXPECT_EQ(Scales(scaler, std::vector<bool>(10, false)),
            (Values{256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096}));
  EXPECT_EQ(Scales(scaler, {true, true, false, false, false, true}),
            (Values{128, 64, 64, 64, 128, 64}));
  scaler.hysteresis = 2;
  EXPECT_EQ(Scales(scaler, {true, true, true}), (Values{256, 128, 64}));
}

TEST_F(LossScaleTest, AtTheMinimumStopsUntilAStateIsLoaded) {
  Create({.loss_scale = 0, .initial_scale_power = 2, .hysteresis = 1});
  for (const float scale : {2.0f, 1.0f}) {
    const kernels::StepState state = Step(true);
    EXPECT_EQ(state.loss_scale, scale);
    EXPECT_EQ(state.stuck_at_minimum, 0);
  }
  EXPECT_EQ(Step(true).stuck_at_minimum, 1);
  const kernels::StepState stuck = Step(false);
  EXPECT_EQ(stuck.stuck_at_minimum, 1);
  EXPECT_EQ(stuck.skip, 1);
  EXPECT_EQ(stuck.step, 0);
  MixedPrecisionState state = trainer_->optimizer->SaveState(*trainer_->stream).value();
  state.step.loss_scale = 64.0f;
  ASSERT_OK(trainer_->optimizer->LoadState(state, *trainer_->stream));
  const kernels::StepState again = Step(false);
  EXPECT_EQ(again.stuck_at_minimum, 0);
  EXPECT_EQ(again.step, 1);
  EXPECT_EQ(again.loss_scale, 64.0f);
}

TEST_F(LossScaleTest, AtTheMinimumGoesOnIfClamped) {
  Create({.loss_scale = 0,
          .initial_scale_power = 1,
          .hysteresis = 1,
          .at_minimum = kernels::AtMinimum::kClamp});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Step(true).loss_scale, 1.0f);
  const kernels::StepState state = Step(false);
  EXPECT_EQ(state.stuck_at_minimum, 0);
  EXPECT_EQ(state.step, 1);
  EXPECT_EQ(state.iteration, 5);
}

TEST_F(LossScaleTest, ScalesTheLossForTheNextBackward) {
  Create({.loss_scale = 0, .initial_scale_power = 3, .hysteresis = 1});
  Step(true);
  const float loss = 1.5f;
  float scaled = 0;
  ASSERT_OK(trainer_->optimizer->ScaleLoss(&loss, &scaled, 1, DType::kFloat32, *trainer_->stream));
  ASSERT_OK(trainer_->stream->Synchronize());
  EXPECT_EQ(scaled, 6.0f);
}

}  // namespace
}  // namespace brigade::optim
