// The launchers with a step whose numbers come from the host, and with steps that nobody filled.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <vector>

#include "brigade/kernels/adam/adam_cpu.h"
#include "brigade/kernels/adam/adam_cuda.h"
#include "brigade/kernels/adam/adam_parameters.h"
#include "brigade/kernels/lamb/lamb_cuda.h"
#include "brigade/kernels/lamb/lamb_parameters.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cuda.h"
#include "brigade/kernels/sgd/sgd_cpu.h"
#include "brigade/kernels/sgd/sgd_cuda.h"
#include "brigade/kernels/sgd/sgd_parameters.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

constexpr int64_t kSize = 1000;
const AdamGroup kAdamGroup = {0.9, 0.999, 1e-8, 0.1};
const SgdGroup kSgdGroup = {0.9, 0.3, 0.1, false};
const LambGroup kLambGroup = {.weight_decay = 0.1};
const float kRate = 1e-2f;

// param, two states and a gradient.
std::vector<float> Arrays() {
  std::vector<float> arrays(4 * kSize);
  for (int64_t i = 0; i < 4 * kSize; ++i) arrays[i] = 0.001f * static_cast<float>(i % 977 + 1);
  return arrays;
}

AdamSegment ForAdam(float* a) {
  return {a, a + kSize, a + 2 * kSize, a + 3 * kSize, nullptr, kSize, 0};
}
SgdSegment ForSgd(float* a) { return {a, a + kSize, a + 3 * kSize, nullptr, kSize, 0}; }

// The launches wait for the end: whoever calls this reads the kernel's error too.
template <typename Launch>
cudaError_t RunOnDevice(std::vector<float>& arrays, const Launch& launch) {
  float* device = nullptr;
  const size_t bytes = arrays.size() * sizeof(float);
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), bytes), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device, arrays.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  cudaError_t error = launch(device);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return error;
  EXPECT_EQ(cudaMemcpy(arrays.data(), device, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  return cudaFree(device);
}

TEST(OneStepGpuTest, AdamGivesTheBitsOfTheCpu) {
  std::vector<float> on_cpu = Arrays(), on_gpu = Arrays();
  for (int64_t step = 1; step <= 3; ++step) {
    const auto parameters = MakeAdamParameters(&kAdamGroup, 1, WeightDecayMode::kDecoupled,
                                               OneStep{step, &kRate, 0.25f});
    ASSERT_EQ((AdamRange<float, NoCopy>(ForAdam(on_cpu.data()), parameters, 0, kSize)),
              StepError::kNone);
    ASSERT_EQ(RunOnDevice(on_gpu,
                          [&](float* a) {
                            const AdamSegment segment = ForAdam(a);
                            return LaunchAdam<float, NoCopy>(&segment, 1, parameters, nullptr);
                          }),
              cudaSuccess);
  }
  EXPECT_EQ(on_gpu, on_cpu);
  EXPECT_NE(on_gpu, Arrays());
}

TEST(OneStepGpuTest, SgdGivesTheBitsOfTheCpu) {
  std::vector<float> on_cpu = Arrays(), on_gpu = Arrays();
  for (int64_t step = 1; step <= 3; ++step) {
    const auto parameters =
        MakeSgdParameters(&kSgdGroup, 1, WeightDecayMode::kCoupled, OneStep{step, &kRate, 0.25f});
    ASSERT_EQ((SgdRange<float, NoCopy>(ForSgd(on_cpu.data()), parameters, 0, kSize)),
              StepError::kNone);
    ASSERT_EQ(RunOnDevice(on_gpu,
                          [&](float* a) {
                            const SgdSegment segment = ForSgd(a);
                            return LaunchSgd<float, NoCopy>(&segment, 1, parameters, nullptr);
                          }),
              cudaSuccess);
  }
  EXPECT_EQ(on_gpu, on_cpu);
  EXPECT_NE(on_gpu, Arrays());
}

TEST(OneStepGpuTest, LaunchersRefuseParametersThatNameNoStep) {
  std::vector<float> arrays = Arrays();
  const auto adam = [&](const AdamParameters& parameters) {
    const AdamSegment segment = ForAdam(arrays.data());
    return LaunchAdam<float, NoCopy>(&segment, 1, parameters, nullptr);
  };
  const auto sgd = [&](const SgdParameters& parameters) {
    const SgdSegment segment = ForSgd(arrays.data());
    return LaunchSgd<float, NoCopy>(&segment, 1, parameters, nullptr);
  };
  const StepState state = {};
  const GroupStep group_step = {};
  const auto mode = WeightDecayMode::kDecoupled;
  EXPECT_EQ(adam(AdamParameters()), cudaErrorInvalidValue);
  EXPECT_EQ(sgd(SgdParameters()), cudaErrorInvalidValue);
  EXPECT_EQ(adam(MakeAdamParameters(&kAdamGroup, 1, mode, nullptr, nullptr)),
            cudaErrorInvalidValue);
  EXPECT_EQ(adam(MakeAdamParameters(&kAdamGroup, 1, mode, &state, nullptr)), cudaErrorInvalidValue);
  EXPECT_EQ(adam(MakeAdamParameters(&kAdamGroup, 1, mode, nullptr, &group_step)),
            cudaErrorInvalidValue);
  EXPECT_EQ(adam(MakeAdamParameters(&kAdamGroup, 1, mode, OneStep{0, &kRate, 1.0f})),
            cudaErrorInvalidValue);
  EXPECT_EQ(sgd(MakeSgdParameters(&kSgdGroup, 1, mode, &state, nullptr)), cudaErrorInvalidValue);
  EXPECT_EQ(sgd(MakeSgdParameters(&kSgdGroup, 1, mode, OneStep{0, &kRate, 1.0f})),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// A kernel that traps leaves its process without a device: each of these has one of its own, which
// exits with 0 if the launch was accepted and its end is an error. It exits at once: the emulator
// reports the trap, and would make it the failure of the process.
template <typename Launch>
[[noreturn]] void ExitWithTheEnd(const StepState& state, const GroupStep& group_step,
                                 const Launch& launch) {
  std::vector<float> arrays = Arrays();
  struct Values {
    StepState state;
    GroupStep group_step;
  };
  const Values values = {state, group_step};
  Values* device = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&device), sizeof(values)) != cudaSuccess) std::_Exit(1);
  if (cudaMemcpy(device, &values, sizeof(values), cudaMemcpyHostToDevice) != cudaSuccess) {
    std::_Exit(2);
  }
  cudaError_t launched = cudaErrorUnknown;
  const cudaError_t end = RunOnDevice(arrays, [&](float* a) {
    launched = launch(a, &device->state, &device->group_step);
    return launched;
  });
  if (launched != cudaSuccess) std::_Exit(3);
  std::_Exit(end == cudaErrorLaunchFailure ? 0 : 4);
}

class UnfilledStepGpuTest : public ::testing::Test {
 protected:
  UnfilledStepGpuTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  [[noreturn]] static void Adam(const StepState& state, const GroupStep& group_step) {
    ExitWithTheEnd(state, group_step, [](float* a, const StepState* s, const GroupStep* g) {
      const AdamSegment segment = ForAdam(a);
      return LaunchAdam<float, NoCopy>(
          &segment, 1, MakeAdamParameters(&kAdamGroup, 1, WeightDecayMode::kDecoupled, s, g),
          nullptr);
    });
  }
  [[noreturn]] static void Sgd(const StepState& state, const GroupStep& group_step) {
    ExitWithTheEnd(state, group_step, [](float* a, const StepState* s, const GroupStep* g) {
      const SgdSegment segment = ForSgd(a);
      return LaunchSgd<float, NoCopy>(
          &segment, 1, MakeSgdParameters(&kSgdGroup, 1, WeightDecayMode::kDecoupled, s, g),
          nullptr);
    });
  }
  // Kernels that end before they read what these point to, or write it.
  [[noreturn]] static void Lamb(const StepState& state, const GroupStep& group_step) {
    ExitWithTheEnd(state, group_step, [](float* a, const StepState* s, const GroupStep* g) {
      const LambSegment segment = {a, a + kSize, a + 2 * kSize, a + 3 * kSize, nullptr, kSize, 0};
      return LaunchLambMoments<float>(&segment, 1, MakeLambParameters(&kLambGroup, 1, s, g),
                                      nullptr, nullptr);
    });
  }
  [[noreturn]] static void OneBitLambSend(const StepState& state, const GroupStep& group_step) {
    ExitWithTheEnd(state, group_step, [](float* a, const StepState* s, const GroupStep* g) {
      const OneBitLambMessage message = {a, a + kSize, a + 2 * kSize, kSize, 0, 0};
      return LaunchOneBitLambSend<float>(&message, 1, MakeLambParameters(&kLambGroup, 1, s, g),
                                         nullptr, nullptr);
    });
  }
  [[noreturn]] static void OneBitLambMoments(const StepState& state, const GroupStep& group_step) {
    ExitWithTheEnd(state, group_step, [](float* a, const StepState* s, const GroupStep* g) {
      const OneBitLambSegment segment = {a, a + kSize, a + 2 * kSize, a + 3 * kSize, a, kSize, 0,
                                         0, 0};
      return LaunchOneBitLambMoments(&segment, 1, MakeLambParameters(&kLambGroup, 1, s, g), nullptr,
                                     nullptr);
    });
  }
  [[noreturn]] static void ZeroOneAdam(const StepState& state, const GroupStep& group_step) {
    ExitWithTheEnd(state, group_step, [](float*, const StepState* s, const GroupStep* g) {
      return LaunchZeroOneRates(
          {ZeroOneCall::kLocal, 1, const_cast<StepState*>(s), g, nullptr, nullptr, nullptr},
          nullptr);
    });
  }
};

TEST_F(UnfilledStepGpuTest, IsAnErrorForAState) {
  const GroupStep group_step = {1e-3f, 1e-3f, 1.0f};
  EXPECT_EXIT(Adam({}, group_step), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Sgd({}, group_step), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Lamb({}, group_step), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(OneBitLambSend({}, group_step), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(OneBitLambMoments({}, group_step), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ZeroOneAdam({}, group_step), ::testing::ExitedWithCode(0), "");
}

TEST_F(UnfilledStepGpuTest, IsAnErrorForAGroup) {
  StepState state = {};
  state.step = 1;
  state.grad_multiplier = 1.0f;
  EXPECT_EXIT(Adam(state, {}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Sgd(state, {}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Lamb(state, {}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(OneBitLambSend(state, {}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(OneBitLambMoments(state, {}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ZeroOneAdam(state, {}), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace brigade::kernels
