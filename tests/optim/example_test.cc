// How to train with a MixedPrecisionOptimizer: a line is fitted in fp16, and the host waits once,
// at the end.

#include <cmath>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/optim/mixed_precision_optimizer.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {
namespace {

using precision::DType;
using precision::Half;

constexpr int kMicroBatches = 2;
constexpr float kInputs[kMicroBatches] = {-1.0f, 2.0f};
float Target(float x) { return 3.0f * x - 1.5f; }

TEST(ExampleTest, FitsALine) {
  ASSERT_OK_AND_ASSIGN(auto context, device::Context::Create({}));
  ASSERT_OK_AND_ASSIGN(auto stream, context->CreateStream("compute"));
  std::vector<Half> weights = {Half(0.0f), Half(0.0f)};  // slope and offset
  std::vector<Half> grad(2);
  const float one = 1.0f;
  float seed = 0.0f;

  MixedPrecisionOptions options;
  options.optimizer.groups = {
      {.lr = 0.1, .schedule = WarmupCosineLR{.total_num_steps = 300, .warmup_num_steps = 10}}};
  options.loss_scaler = LossScaler::Dynamic();
  options.max_grad_norm = 1.0;
  options.micro_batches = kMicroBatches;
  const ParameterArrays parameter = {.name = "line",
                                     .weights = weights.data(),
                                     .grad = grad.data(),
                                     .size = 2,
                                     .weight_dtype = DType::kFloat16,
                                     .grad_dtype = DType::kFloat16};
  ASSERT_OK_AND_ASSIGN(
      auto optimizer, MixedPrecisionOptimizer::Create({&parameter, 1}, options, *context, *stream));
  std::vector<kernels::StepState> states;
  const auto take = [&] {
    while (true) {
      const auto state = optimizer->TakeState().value();
      if (!state.has_value()) break;
      states.push_back(*state);
    }
  };
  for (int step = 0; step < 300; ++step) {
    for (int i = 0; i < kMicroBatches; ++i) {
      // What backward begins with: d loss / d loss, times the scale that the device knows.
      ASSERT_OK(optimizer->ScaleLoss(&one, &seed, 1, DType::kFloat32, *stream));
      ASSERT_OK(stream->Enqueue(
          {"forward and backward",
           {device::Reads(weights.data(), 4), device::Reads(&seed, 4),
            device::Writes(grad.data(), 4)}},
          [&, x = kInputs[i]](device::ThreadPool&) {
            const float y = static_cast<float>(weights[0]) * x + static_cast<float>(weights[1]);
            const float slope = seed * 2.0f * (y - Target(x));  // of (y - target)^2
            grad[0] = Half(slope * x);
            grad[1] = Half(slope);
            return absl::OkStatus();
          }));
      ASSERT_OK(optimizer->AccumulateGradients(*stream));
    }
    ASSERT_OK(optimizer->Step(*stream));
    if (step % 50 == 49) {
      ASSERT_OK(optimizer->RequestState(*stream));
    }
    take();
  }
  ASSERT_OK(stream->Synchronize());
  take();

  EXPECT_NEAR(static_cast<float>(weights[0]), 3.0f, 0.01f);
  EXPECT_NEAR(static_cast<float>(weights[1]), -1.5f, 0.01f);
  ASSERT_EQ(states.size(), 6u);
  EXPECT_EQ(states.back().iteration, 300);
  // 2^16 times the first errors was too much for fp16.
  EXPECT_LT(states.back().step, 300);
  EXPECT_LT(states.back().loss_scale, 65536.0f);
}

}  // namespace
}  // namespace brigade::optim
