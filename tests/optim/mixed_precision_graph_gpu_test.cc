// A step captured into a CUDA graph once and replayed: all that differs from step to step is in
// device memory.

#include <cuda_runtime.h>

#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/tests/optim/same_bits.h"
#include "brigade/tests/optim/training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

constexpr int kSteps = 15;

class MixedPrecisionGraphGpuTest : public ::testing::TestWithParam<OptimizerKind> {};

TEST_P(MixedPrecisionGraphGpuTest, ReplaysOfACapturedStepGiveTheSpecificationsBits) {
  const Training training(
      {{5001, 0, DType::kFloat16, DType::kFloat16},
       {200000, 1, DType::kFloat16, DType::kFloat16},
       {8193, 1, DType::kFloat32, DType::kBFloat16}},
      {.optimizer = {.kind = GetParam(),
                     .groups = {{.lr = 1e-2, .weight_decay = 0.01, .momentum = 0.9},
                                {.schedule = WarmupLR{.warmup_num_steps = 8}}}},
       .loss_scaler = {.loss_scale = 0, .initial_scale_power = 10, .loss_scale_window = 3},
       .max_grad_norm = 1.0},
      kSteps);
  Trainer trainer(training, {.device = device::Cuda()});
  Specified wanted(training);
  cudaStream_t handle = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess);
  trainer.stream = trainer.context->BorrowStream(handle, "captured").value();

  // Loads the kernels, which a capture must not wait for.
  ASSERT_OK(trainer.Step(0));
  wanted.Step(0);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const absl::Status captured = trainer.optimizer->Step(*trainer.stream);
  ASSERT_EQ(cudaStreamEndCapture(handle, &graph), cudaSuccess);
  ASSERT_OK(captured);
  cudaGraphExec_t step = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&step, graph, 0), cudaSuccess);

  const int64_t waits = trainer.context->host_waits();
  for (int i = 1; i < kSteps; ++i) {
    ASSERT_OK(trainer.Backward(i, 0));
    ASSERT_EQ(cudaGraphLaunch(step, handle), cudaSuccess);
    wanted.Step(i);
  }
  EXPECT_EQ(trainer.context->host_waits(), waits);
  ExpectSameBits(trainer, wanted, training);

  trainer.stream.reset();
  EXPECT_EQ(cudaGraphExecDestroy(step), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(handle), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, MixedPrecisionGraphGpuTest,
                         ::testing::Values(OptimizerKind::kAdamW, OptimizerKind::kSgd,
                                           OptimizerKind::kLion, OptimizerKind::kLamb));

}  // namespace
}  // namespace brigade::optim
