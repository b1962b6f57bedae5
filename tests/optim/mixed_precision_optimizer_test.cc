// Whole training runs by the public object: the specification's bits, without a host wait or an
// allocation.

#include "brigade/optim/mixed_precision_optimizer.h"

#include <string>
#include <vector>

#include "brigade/tests/device/testing.h"
#include "brigade/tests/optim/same_bits.h"
#include "brigade/tests/optim/training.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

constexpr int kSteps = 52;

// Three groups; each moment, decay and schedule is another.
OptimizerOptions Optimizer(OptimizerKind kind) {
  return {
      .kind = kind,
      .groups = {{.lr = 1e-2,
                  .schedule = WarmupLR{.warmup_num_steps = 8, .warmup_type = WarmupType::kLinear},
                  .weight_decay = 0.01,
                  .momentum = 0.9,
                  .nesterov = true},
                 {.lr = 3e-3,
                  .schedule = WarmupCosineLR{.total_num_steps = 30, .warmup_num_steps = 4},
                  .weight_decay = 0.1,
                  .beta1 = 0.8,
                  .beta2 = 0.95,
                  .eps = 1e-6,
                  .momentum = 0.5,
                  .dampening = 0.25},
                 {.lr = 1e-3}}};
}

LossScaler Dynamic() {
  return {.loss_scale = 0, .initial_scale_power = 10, .loss_scale_window = 3, .hysteresis = 1};
}

std::vector<TensorType> Types(DType dtype) {
  std::vector<TensorType> types;
  for (const int64_t size : {3, 0, 4345, 8192, 1, 9000}) {
    types.push_back({size, static_cast<int32_t>(types.size() % 3), dtype, dtype});
  }
  return types;
}

class BitsTest : public ::testing::TestWithParam<std::tuple<OptimizerKind, DType, int>> {};

TEST_P(BitsTest, AreTheSpecifications) {
  const auto [kind, dtype, micro_batches] = GetParam();
  MixedPrecisionOptions options = {
      .optimizer = Optimizer(kind), .max_grad_norm = 1.0, .micro_batches = micro_batches};
  if (dtype == DType::kFloat16) options.loss_scaler = Dynamic();
  if (dtype == DType::kBFloat16) options.accumulator_dtype = DType::kBFloat16;
  if (dtype == DType::kFloat32) options.loss_scaler = {.loss_scale = 8.0f};
  const Training training(Types(dtype), options, kSteps);
  Trainer trainer(training, {.compute_threads = 2});
  Specified wanted(training);
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_OK(trainer.Step(step));
    wanted.Step(step);
  }
  EXPECT_EQ(wanted.state.step, kSteps - 7);  // every seventh was skipped
  ExpectSameBits(trainer, wanted, training);
}

std::string RunName(const ::testing::TestParamInfo<BitsTest::ParamType>& info) {
  const auto [kind, dtype, micro_batches] = info.param;
  const char* const kinds[] = {"AdamW", "Adam", "Sgd", "Lion", "OneBitAdam", "Lamb"};
  return std::string(kinds[static_cast<int>(kind)]) + "_" + std::string(precision::Name(dtype)) +
         "_" + std::to_string(micro_batches);
}

INSTANTIATE_TEST_SUITE_P(
    OfEveryTypeAndOptimizer, BitsTest,
    ::testing::Combine(::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kAdam,
                                         OptimizerKind::kSgd, OptimizerKind::kLion,
                                         OptimizerKind::kLamb),
                       ::testing::Values(DType::kFloat16, DType::kBFloat16, DType::kFloat32),
                       ::testing::Values(1, 3)),
    RunName);

TEST(MixedPrecisionOptimizerTest, MixedTypesAddTheirStatisticsInOrder) {
  const std::vector<TensorType> types = {{5000, 0, DType::kBFloat16, DType::kBFloat16},
                                         {9000, 1, DType::kFloat32, DType::kFloat32},
                                         {100, 2, DType::kBFloat16, DType::kFloat32},
                                         {8193, 0, DType::kBFloat16, DType::kBFloat16},
                                         {77, 1, DType::kFloat32, DType::kBFloat16}};
  for (const int micro_batches : {1, 2}) {
    const Training training(types,
                            {.optimizer = Optimizer(OptimizerKind::kAdamW),
                             .loss_scaler = Dynamic(),
                             .max_grad_norm = 1.0,
                             .micro_batches = micro_batches},
                            20);
    Trainer trainer(training, {.compute_threads = 2});
    Specified wanted(training);
    for (int step = 0; step < 20; ++step) {
      ASSERT_OK(trainer.Step(step));
      wanted.Step(step);
    }
    ExpectSameBits(trainer, wanted, training);
  }
}

TEST(MixedPrecisionOptimizerTest, OverflowsCanBeLetPass) {
  const Training training(
      Types(DType::kBFloat16),
      {.optimizer = Optimizer(OptimizerKind::kAdamW), .loss_scaler = {.check_overflow = false}}, 5);
  Trainer trainer(training, {.compute_threads = 2});
  Specified wanted(training);
  for (int step = 0; step < 5; ++step) {
    ASSERT_OK(trainer.Step(step));
    wanted.Step(step);
  }
  EXPECT_EQ(wanted.state.step, 5);
  ExpectSameBits(trainer, wanted, training);
}

TEST(MixedPrecisionOptimizerTest, AStepNeitherWaitsNorAllocates) {
  const Training training(Types(DType::kFloat16),
                          {.optimizer = Optimizer(OptimizerKind::kAdamW),
                           .loss_scaler = Dynamic(),
                           .max_grad_norm = 1.0,
                           .micro_batches = 3},
                          16);
  Trainer trainer(training, {.compute_threads = 2, .checks = false});
  const MixedPrecisionState initial = trainer.optimizer->SaveState(*trainer.stream).value();
  const int steps = static_cast<int>(training.grads.size());
  int64_t waits = -1, allocations = -1;
  // Queue, scratch lists and records of events grow to what they need. A closed gate makes it the
  // most that they can need; in the second round the events hold their old records while they get
  // new ones.
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK(trainer.optimizer->LoadState(initial, *trainer.stream));
    while (trainer.optimizer->TakeState()->has_value()) {
    }
    device::Gate gate;
    ASSERT_OK(device::Block(*trainer.stream, gate));
    gate.AwaitArrival();
    absl::Status status;
    waits = trainer.context->host_waits();
    allocations = brigade::testing::CountedAllocations();
    for (int step = 0; step < steps; ++step) {
      status.Update(trainer.Step(step));
      if (step < 2) {  // a third change would wait for the first
        status.Update(trainer.optimizer->SetLearningRate(2, 1e-3, *trainer.stream));
      }
      status.Update(trainer.optimizer->RequestState(*trainer.stream));
      status.Update(trainer.optimizer->TakeState().status());
    }
    waits = trainer.context->host_waits() - waits;
    allocations = brigade::testing::CountedAllocations() - allocations;
    gate.Open();
    ASSERT_OK(status);
    ASSERT_OK(trainer.stream->Synchronize());
  }
  EXPECT_EQ(waits, 0);
  EXPECT_EQ(allocations, 0);
  Specified wanted(training);
  for (int step = 0; step < steps; ++step) wanted.Step(step);
  ExpectSameBits(trainer, wanted, training);
}

TEST(MixedPrecisionOptimizerTest, UnorderedUseOfTheGradientsIsARace) {
  device::RaceChecker checker;
  const Training training({{100}, {9000}}, {}, 1);
  Trainer trainer(training, {.compute_threads = 1, .checks = true, .race_checker = &checker});
  auto other = trainer.context->CreateStream("other").value();
  ASSERT_OK(trainer.Step(0));
  ASSERT_OK(trainer.stream->Synchronize());
  // The gate keeps the two apart, which the checker cannot know, so that only it reports.
  device::Gate gate;
  ASSERT_OK(device::Block(*trainer.stream, gate));
  ASSERT_OK(trainer.optimizer->Step(*trainer.stream));
  ASSERT_OK(other->FillBytes(trainer.grads[0].data(), 0, trainer.grads[0].bytes()));
  EXPECT_THAT(other->Synchronize(),
              brigade::testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                         ::testing::HasSubstr("no event orders them")));
  EXPECT_EQ(checker.reports().size(), 1u);
  gate.Open();
  ASSERT_OK(trainer.stream->Synchronize());
}

}  // namespace
}  // namespace brigade::optim
