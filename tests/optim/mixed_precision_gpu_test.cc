// Whole training runs on a GPU: the specification's bits, without a host wait.

#include <vector>

#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/tests/optim/same_bits.h"
#include "brigade/tests/optim/training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

// StepController keeps the states of all of them.
constexpr int kSteps = 15;

TEST(MixedPrecisionGpuTest, GivesTheSpecificationsBitsAndReadsStatesWithoutWaiting) {
  const std::vector<TensorType> types = {{5001, 0, DType::kFloat16, DType::kFloat16},
                                         {0, 0, DType::kFloat16, DType::kFloat16},
                                         {200000, 1, DType::kFloat16, DType::kFloat16},
                                         {8193, 1, DType::kFloat32, DType::kBFloat16}};
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd,
                                   OptimizerKind::kLion, OptimizerKind::kLamb}) {
    for (const int micro_batches : {1, 3}) {
      const Training training(
          types,
          {.optimizer = {.kind = kind,
                         .groups = {{.lr = 1e-2, .weight_decay = 0.01, .momentum = 0.9},
                                    {.schedule = WarmupLR{.warmup_num_steps = 8}}}},
           .loss_scaler = {.loss_scale = 0, .initial_scale_power = 10, .loss_scale_window = 3},
           .max_grad_norm = 1.0,
           .micro_batches = micro_batches},
          kSteps);
      Trainer trainer(training, {.device = device::Cuda()});
      Specified wanted(training);
      const int64_t waits = trainer.context->host_waits();
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_OK(trainer.Step(step));
        ASSERT_OK(trainer.optimizer->RequestState(*trainer.stream));
      }
      EXPECT_EQ(trainer.context->host_waits(), waits);
      ASSERT_OK(trainer.stream->Synchronize());
      for (int step = 0; step < kSteps; ++step) {
        wanted.Step(step);
        EXPECT_EQ(trainer.optimizer->TakeState()->value().grad_norm, wanted.state.grad_norm);
      }
      ExpectSameBits(trainer, wanted, training);
    }
  }
}

}  // namespace
}  // namespace brigade::optim
