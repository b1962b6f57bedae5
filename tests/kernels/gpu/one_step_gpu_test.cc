// The launchers with a step whose numbers come from the host, and with steps that nobody filled.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "brigade/kernels/step_control/step_control_cuda.h"
#include "brigade/kernels/step_control/step_control_parameters.h"
#include "brigade/tests/kernels/gpu/step_launches.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using Launches =
    ::testing::Types<AdamLaunch, Adam8Launch, SgdLaunch, LionLaunch, MuonMomentumLaunch,
                     MuonParamsLaunch, AdafactorFactorsLaunch, AdafactorParamsLaunch,
                     LambMomentsLaunch, LambParamsLaunch, LambLaunch, OneBitLambSendLaunch,
                     OneBitLambMomentsLaunch, ZeroOneLaunch<ZeroOneCall::kSend>,
                     ZeroOneLaunch<ZeroOneCall::kMeet>, ZeroOneLaunch<ZeroOneCall::kLocal>>;

const float kRate = 1e-2f;

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

// The first element of the four parts whose bits differ, or none.
int64_t FirstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  for (int64_t i = 0; i < kStepWork; ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return i;
  }
  return -1;
}

template <typename Launch>
class OneStepGpuTest : public ::testing::Test {};
TYPED_TEST_SUITE(OneStepGpuTest, Launches);

TYPED_TEST(OneStepGpuTest, GivesTheBitsOfTheCpu) {
  std::vector<float> on_cpu = StepArrays(), on_gpu = StepArrays();
  for (int64_t step = 1; step <= 3; ++step) {
    const auto parameters = TypeParam::Make(OneStep{step, &kRate, 0.25f});
    ASSERT_EQ(TypeParam::OnCpu(on_cpu.data(), parameters), StepError::kNone);
    ASSERT_EQ(RunOnDevice(on_gpu, [&](float* a) { return TypeParam::OnGpu(a, parameters); }),
              cudaSuccess);
  }
  EXPECT_EQ(FirstDifference(on_gpu, on_cpu), -1);
  EXPECT_NE(FirstDifference(on_gpu, StepArrays()), -1);
}

TYPED_TEST(OneStepGpuTest, RefusesParametersThatNameNoStep) {
  std::vector<float> arrays = StepArrays();
  const StepState* const no_state = nullptr;
  const GroupStep* const no_group_steps = nullptr;
  const StepState state = {};
  const GroupStep group_step = {};
  for (const auto& parameters :
       {typename TypeParam::Parameters(), TypeParam::Make(no_state, no_group_steps),
        TypeParam::Make(&state, no_group_steps), TypeParam::Make(no_state, &group_step),
        TypeParam::Make(OneStep{0, &kRate, 1.0f}), TypeParam::Make(OneStep{1, nullptr, 1.0f})}) {
    EXPECT_EQ(TypeParam::OnGpu(arrays.data(), parameters), cudaErrorInvalidValue);
    EXPECT_EQ(TypeParam::OnCpu(arrays.data(), parameters), StepError::kNoStep);
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(FirstDifference(arrays, StepArrays()), -1);
}

// What a step reads of device memory, and what StepControl makes it from.
struct StepMemory {
  StepState state;
  GroupStep group_step;
  GradStats stats = {1.0, 1};
  float lr = 1e-2f;
};

// A kernel that traps leaves its process without a device: each of these has one of its own, which
// exits with kTrapped if launch(arrays, memory) was accepted and its end is an error, with kStepped
// if values have changed, and with kNothing if none has. It exits at once: the emulator reports the
// trap, and would make it the failure of the process.
constexpr int kTrapped = 10, kStepped = 11, kNothing = 12;
template <typename Launch>
[[noreturn]] void ExitWithTheEnd(const StepMemory& memory, const Launch& launch) {
  std::vector<float> arrays = StepArrays();
  StepMemory* device = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&device), sizeof(memory)) != cudaSuccess) std::_Exit(1);
  if (cudaMemcpy(device, &memory, sizeof(memory), cudaMemcpyHostToDevice) != cudaSuccess) {
    std::_Exit(2);
  }
  cudaError_t launched = cudaErrorUnknown;
  const cudaError_t end = RunOnDevice(arrays, [&](float* a) {
    launched = launch(a, device);
    return launched;
  });
  if (launched != cudaSuccess) std::_Exit(3);
  if (end == cudaErrorLaunchFailure) std::_Exit(kTrapped);
  if (end != cudaSuccess) std::_Exit(4);
  std::_Exit(FirstDifference(arrays, StepArrays()) != -1 ? kStepped : kNothing);
}

constexpr GroupStep kFilledGroup = {1e-3f, 1e-3f, 1.0f};
StepState FilledState() {
  StepState state = {};
  state.step = 1;
  state.grad_multiplier = 1.0f;
  return state;
}

template <typename Launch>
class UnfilledStepGpuTest : public ::testing::Test {
 protected:
  UnfilledStepGpuTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  [[noreturn]] static void Run(const StepState& state, const GroupStep& group_step) {
    ExitWithTheEnd({state, group_step}, [](float* a, const StepMemory* memory) {
      return Launch::OnGpu(a, Launch::Make(&memory->state, &memory->group_step));
    });
  }
};
TYPED_TEST_SUITE(UnfilledStepGpuTest, Launches);

TYPED_TEST(UnfilledStepGpuTest, IsAnErrorForAState) {
  EXPECT_EXIT(TestFixture::Run({}, kFilledGroup), ::testing::ExitedWithCode(kTrapped), "");
}

TYPED_TEST(UnfilledStepGpuTest, IsAnErrorForAGroup) {
  EXPECT_EXIT(TestFixture::Run(FilledState(), {}), ::testing::ExitedWithCode(kTrapped), "");
}

// Launches that always fail would pass the two above.
TYPED_TEST(UnfilledStepGpuTest, IsARealStepOnceBothAreFilled) {
  EXPECT_EXIT(TestFixture::Run(FilledState(), kFilledGroup), ::testing::ExitedWithCode(kStepped),
              "");
}

TEST(UnfilledStepGpuDeathTest, IsAnErrorForAStateThatStepControlGotAsZeros) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [](const StepState& first) {
    ExitWithTheEnd({first, {}}, [](float* a, StepMemory* memory) {
      const StepBetas betas = {0.9, 0.999};
      StepParameters parameters = MakeStepParameters({}, &betas, 1);
      parameters.stats = &memory->stats;
      parameters.ranks = 1;
      parameters.state = &memory->state;
      parameters.group_steps = &memory->group_step;
      parameters.lr_table = &memory->lr;
      parameters.lr_table_size = 1;
      const cudaError_t error = LaunchStepControl(parameters, nullptr);
      if (error != cudaSuccess) return error;
      return AdamLaunch::OnGpu(a, AdamLaunch::Make(&memory->state, &memory->group_step));
    });
  };
  EXPECT_EXIT(run({}), ::testing::ExitedWithCode(kTrapped), "");
  EXPECT_EXIT(run(InitialStepState({})), ::testing::ExitedWithCode(kStepped), "");
}

}  // namespace
}  // namespace brigade::kernels
