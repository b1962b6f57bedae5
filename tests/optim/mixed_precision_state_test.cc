// What goes in and out of a MixedPrecisionOptimizer besides its steps: checkpoints, memory,
// micro-batches, learning rates, failures.

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/tests/device/testing.h"
#include "brigade/tests/optim/same_bits.h"
#include "brigade/tests/optim/training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

const std::vector<TensorType> kTypes = {{100, 0, DType::kFloat16, DType::kFloat16},
                                        {9000, 1, DType::kFloat32, DType::kFloat32},
                                        {0, 1, DType::kFloat16, DType::kFloat16},
                                        {16385, 1, DType::kFloat16, DType::kFloat16}};

MixedPrecisionOptions Options(int micro_batches, OptimizerKind kind = OptimizerKind::kAdamW) {
  return {.optimizer = {.kind = kind,
                        .groups = {{.lr = 1e-2, .momentum = 0.9},
                                   {.schedule = WarmupLR{.warmup_num_steps = 5}}}},
          .loss_scaler = {.loss_scale = 0, .initial_scale_power = 10, .loss_scale_window = 3},
          .max_grad_norm = 1.0,
          .micro_batches = micro_batches};
}

TEST(MixedPrecisionStateTest, MemoryIsWhatTheHeaderSays) {
  // 100 and 16385 elements, rounded up to 64, have a master; 9000 have not.
  const int64_t masters = 128 + 16448, all = masters + 9024;
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLion, OptimizerKind::kLamb}) {
    for (const int micro_batches : {1, 2}) {
      MixedPrecisionOptions options = Options(micro_batches, kind);
      options.accumulator_dtype = DType::kBFloat16;
      const Training training(kTypes, options, 1);
      Trainer trainer(training, device::CpuOptions());
      const device::MemoryStats& stats = trainer.context->memory_stats();
      const bool is_lamb = kind == OptimizerKind::kLamb;
      EXPECT_EQ(stats.current_bytes(device::Purpose::kOptimizerState),
                4 * masters + 4 * all * (kind == OptimizerKind::kAdamW || is_lamb ? 2 : 1));
      EXPECT_EQ(stats.current_bytes(device::Purpose::kGradients), micro_batches == 2 ? 2 * all : 0);
      // Tiles: 1 and 3 of fp16, 2 of fp32. Tables of 7 rates in 2 groups.
      const int64_t controller = 2 * 16 + 56 + 2 * 12 + 2 * 7 * 4;
      EXPECT_EQ(StepController::Bytes(options.optimizer, {.ranks = 2}), controller);
      // Of LAMB two sums for each tile, and a ratio for each parameter.
      const int64_t lamb = is_lamb ? 16 * 6 + 4 * static_cast<int64_t>(kTypes.size()) : 0;
      EXPECT_EQ(stats.current_bytes(device::Purpose::kScratch), 8 * 6 + controller + lamb);
      trainer.optimizer.reset();
      EXPECT_EQ(stats.current_bytes(), trainer.bytes_before);
    }
  }
}

TEST(MixedPrecisionStateTest, ACheckpointGoesOnWithTheSameBits) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kSgd, OptimizerKind::kLion, OptimizerKind::kLamb}) {
    const Training training(kTypes, Options(2, kind), 16);
    Specified wanted(training);
    Trainer first(training, device::CpuOptions());
    for (int step = 0; step < 9; ++step) {
      ASSERT_OK(first.Step(step));
      wanted.Step(step);
    }
    ASSERT_OK_AND_ASSIGN(const MixedPrecisionState state,
                         first.optimizer->SaveState(*first.stream));
    // Another model, and half a step: all of it is overwritten.
    Training other = training;
    for (Values& weights : other.weights) weights.assign(weights.size(), 7.0f);
    Trainer second(other, device::CpuOptions());
    ASSERT_OK(second.Step(0));
    ASSERT_OK(second.Backward(1, 0));
    ASSERT_OK(second.optimizer->AccumulateGradients(*second.stream));
    ASSERT_OK(second.optimizer->LoadState(state, *second.stream));
    ExpectSameBits(second, wanted, training);
    for (int step = 9; step < 16; ++step) {
      ASSERT_OK(second.Step(step));
      wanted.Step(step);
    }
    ExpectSameBits(second, wanted, training);
  }
}

TEST(MixedPrecisionStateTest, ACheckpointThatDoesNotFitIsRefusedAndChangesNothing) {
  const Training training(kTypes, Options(1), 2);
  Specified wanted(training);
  Trainer trainer(training, device::CpuOptions());
  ASSERT_OK(trainer.Step(0));
  wanted.Step(0);
  ASSERT_OK_AND_ASSIGN(const MixedPrecisionState good,
                       trainer.optimizer->SaveState(*trainer.stream));
  const struct {
    std::function<void(MixedPrecisionState&)> spoil;
    const char* text;
  } cases[] = {
      {[](auto& s) { s.master.pop_back(); }, "master has 25484 elements, must have 25485"},
      {[](auto& s) { s.first_moment.clear(); }, "first_moment has 0 elements"},
      {[](auto& s) { s.second_moment.push_back(0); }, "second_moment has 25486 elements"},
      {[](auto& s) { s.step.loss_scale = 0.5f; }, "loss_scale is 0.5, must be min_loss_scale to"},
      {[](auto& s) { s.step.loss_scale = NAN; }, "loss_scale is nan"},
      {[](auto& s) { s.step.hysteresis = 0; }, "hysteresis is 0"},
      {[](auto& s) { s.step.hysteresis = 3; }, "hysteresis is 3"},
      {[](auto& s) { s.step.step = 2; }, "step is 2, must be in [0, iteration]"},
      {[](auto& s) { s.step.iteration = -1; }, "iteration is -1"},
      {[](auto& s) { s.step.last_overflow = 1; }, "last_overflow is 1"},
      {[](auto& s) { s.step.grad_norm = -1; }, "grad_norm is -1, must be 0 or more"},
      {[](auto& s) { s.step.grad_norm = NAN; }, "grad_norm is nan"},
      {[](auto& s) { s.step.skip = 2; }, "skip is 2, must be 0 or 1"},
      {[](auto& s) { s.step.stuck_at_minimum = -1; }, "stuck_at_minimum is -1"},
      {[](auto& s) { s.step.reserved = 1; }, "reserved is 1, must be 0"},
  };
  for (const auto& c : cases) {
    MixedPrecisionState state = good;
    for (float& value : state.master) value = -1.0f;
    c.spoil(state);
    EXPECT_THAT(trainer.optimizer->LoadState(state, *trainer.stream),
                StatusIs(kInvalid, HasSubstr(c.text)));
  }
  ExpectSameBits(trainer, wanted, training);
  ASSERT_OK(trainer.Step(1));
  wanted.Step(1);
  ExpectSameBits(trainer, wanted, training);
}

TEST(MixedPrecisionStateTest, AnotherStaticScaleIsRefused) {
  const Training training({{5}}, {.loss_scaler = {.loss_scale = 8.0f}}, 1);
  Trainer trainer(training, device::CpuOptions());
  MixedPrecisionState state = trainer.optimizer->SaveState(*trainer.stream).value();
  state.step.loss_scale = 16.0f;
  EXPECT_THAT(trainer.optimizer->LoadState(state, *trainer.stream),
              StatusIs(kInvalid, HasSubstr("loss_scale is 16, must be the static loss_scale")));
  state.step.loss_scale = 8.0f;
  state.step.hysteresis = -1;
  EXPECT_THAT(trainer.optimizer->LoadState(state, *trainer.stream),
              StatusIs(kInvalid, HasSubstr("hysteresis is -1, must be 0 or more")));
  // What an overflow leaves is a state like others.
  state.step.hysteresis = 0;
  state.step.grad_norm = INFINITY;
  state.step.skip = 1;
  EXPECT_OK(trainer.optimizer->LoadState(state, *trainer.stream));
}

TEST(MixedPrecisionStateTest, AWrongNumberOfMicroBatchesIsRefusedAndCanBePutRight) {
  const Training training(kTypes, Options(3), 2);
  Specified wanted(training);
  Trainer trainer(training, device::CpuOptions());
  MixedPrecisionOptimizer& optimizer = *trainer.optimizer;
  EXPECT_THAT(optimizer.Step(*trainer.stream),
              StatusIs(kPrecondition, HasSubstr("Step after 0 of 3 micro-batches")));
  // A batch that breaks off is dropped.
  ASSERT_OK(trainer.Backward(1, 0));
  ASSERT_OK(optimizer.AccumulateGradients(*trainer.stream));
  optimizer.DropGradients();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(optimizer.Step(*trainer.stream),
                StatusIs(kPrecondition, HasSubstr("Step after " + std::to_string(i) + " of 3")));
    ASSERT_OK(trainer.Backward(0, i));
    ASSERT_OK(optimizer.AccumulateGradients(*trainer.stream));
  }
  EXPECT_THAT(optimizer.AccumulateGradients(*trainer.stream),
              StatusIs(kPrecondition, HasSubstr("all 3 micro-batches are there, Step is next")));
  ASSERT_OK(optimizer.Step(*trainer.stream));
  wanted.Step(0);
  ExpectSameBits(trainer, wanted, training);
}

TEST(MixedPrecisionStateTest, OneMicroBatchNeedsNoAccumulationButRefusesASecond) {
  const Training training({{5}}, {}, 1);
  Trainer trainer(training, device::CpuOptions());
  ASSERT_OK(trainer.Backward(0, 0));
  ASSERT_OK(trainer.optimizer->Step(*trainer.stream));
  ASSERT_OK(trainer.optimizer->AccumulateGradients(*trainer.stream));
  EXPECT_THAT(trainer.optimizer->AccumulateGradients(*trainer.stream),
              StatusIs(kPrecondition, HasSubstr("all 1 micro-batches")));
  ASSERT_OK(trainer.optimizer->Step(*trainer.stream));
}

TEST(MixedPrecisionStateTest, AfterAFailureOfTheStreamACheckpointGoesOn) {
  const Training training(kTypes, Options(2), 4);
  Specified wanted(training);
  Trainer trainer(training, device::CpuOptions());
  ASSERT_OK(trainer.Step(0));
  wanted.Step(0);
  const MixedPrecisionState state = trainer.optimizer->SaveState(*trainer.stream).value();
  ASSERT_OK(trainer.Backward(1, 0));
  ASSERT_OK(trainer.optimizer->AccumulateGradients(*trainer.stream));
  ASSERT_OK(device::Fail(*trainer.stream, "disk on fire"));
  ASSERT_OK(trainer.optimizer->RequestState(*trainer.stream));
  EXPECT_THAT(trainer.stream->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
  const auto lost = StatusIs(absl::StatusCode::kDataLoss, HasSubstr("disk on fire"));
  EXPECT_THAT(trainer.optimizer->AccumulateGradients(*trainer.stream), lost);
  EXPECT_THAT(trainer.optimizer->TakeState(), lost);
  EXPECT_EQ(trainer.optimizer->TakeState().value(), std::nullopt);
  ASSERT_OK(trainer.stream->Reset());
  EXPECT_THAT(trainer.optimizer->Step(*trainer.stream),
              StatusIs(kPrecondition, HasSubstr("Step after 0 of 2 micro-batches")));
  ASSERT_OK(trainer.optimizer->LoadState(state, *trainer.stream));
  for (int step = 1; step < 4; ++step) {
    ASSERT_OK(trainer.Step(step));
    wanted.Step(step);
  }
  ExpectSameBits(trainer, wanted, training);
}

TEST(MixedPrecisionStateTest, LearningRatesChangeAtRunTime) {
  const Training training(kTypes, Options(1), 10);
  Specified wanted(training);
  Trainer trainer(training, device::CpuOptions());
  for (int step = 0; step < 10; ++step) {
    if (step == 5) {
      ASSERT_OK(trainer.optimizer->SetLearningRate(0, 0.5, *trainer.stream));
      wanted.learning_rates[0] = {0.5f};
      const WarmupDecayLR decay = {.total_num_steps = 3, .warmup_num_steps = 2};
      ASSERT_OK(trainer.optimizer->SetSchedule(1, 0.0, decay, *trainer.stream));
      wanted.learning_rates[1] = LearningRates(decay, 0.0);
    }
    ASSERT_OK(trainer.Step(step));
    wanted.Step(step);
  }
  ExpectSameBits(trainer, wanted, training);
}

}  // namespace
}  // namespace brigade::optim
