// The optimizers' kernels as nvcc compiles them: the CPU's bits, and whole sectors.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/lion/lion.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/tests/kernels/counters/counted_launch.h"
#include "brigade/tests/kernels/counters/expect_goals.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

constexpr int64_t kSize = (int64_t{1} << 16) + 77;

// How far the arrays of a segment lie past a sector, in elements: param, gradient, copy, state.
struct Shifts {
  int64_t param, grad, copy, state;

  std::string ToString() const {
    return absl::StrCat("shifts ", param, " ", grad, " ", copy, " ", state);
  }
};

template <typename Grad, typename Copy, typename Group, typename Options>
void SetOptions(bool decoupled, Group& group, const StepState* state, const GroupStep* steps,
                Options& options) {
  group.weight_decay = 0.01;
  options.grad_dtype = precision::kDType<Grad>;
  if constexpr (!std::is_same_v<Copy, NoCopy>) options.copy_dtype = precision::kDType<Copy>;
  options.weight_decay_mode = decoupled ? WeightDecayMode::kDecoupled : WeightDecayMode::kCoupled;
  options.groups = {&group, 1};
  options.state = state;
  options.group_steps = steps;
}

// What the two optimizers do differently.
template <typename Grad, typename Copy>
struct AdamCase {
  using Policy = AdamPolicy;
  static constexpr const char* kName = "adam";
  static constexpr const char* kKernel = "AdamKernel";

  AdamCase(bool decoupled, const StepState* state, const GroupStep* steps) {
    group.beta2 = 0.95;
    SetOptions<Grad, Copy>(decoupled, group, state, steps, options);
  }
  AdamCase(const AdamCase&) = delete;

  static AdamSegment Segment(float* param, float* const* states, const void* grad, void* copy) {
    return {param, states[0], states[1], grad, copy, kSize, 0};
  }
  AdamParameters Parameters() const { return MakeAdamParameters(options); }
  absl::Status Run(const AdamSegment& segment, device::Stream& stream) const {
    return Adam({&segment, 1}, options, stream);
  }

  AdamGroup group;
  AdamOptions options;
};

template <typename Grad, typename Copy>
struct SgdCase {
  using Policy = SgdPolicy;
  static constexpr const char* kName = "sgd";
  static constexpr const char* kKernel = "SgdKernel";

  SgdCase(bool decoupled, const StepState* state, const GroupStep* steps) {
    group.momentum = 0.9;
    SetOptions<Grad, Copy>(decoupled, group, state, steps, options);
  }
  SgdCase(const SgdCase&) = delete;

  static SgdSegment Segment(float* param, float* const* states, const void* grad, void* copy) {
    return {param, states[0], grad, copy, kSize, 0};
  }
  SgdParameters Parameters() const { return MakeSgdParameters(options); }
  absl::Status Run(const SgdSegment& segment, device::Stream& stream) const {
    return Sgd({&segment, 1}, options, stream);
  }

  SgdGroup group;
  SgdOptions options;
};

template <typename Grad, typename Copy>
struct LionCase {
  using Policy = LionPolicy;
  static constexpr const char* kName = "lion";
  static constexpr const char* kKernel = "LionKernel";

  LionCase(bool, const StepState* state, const GroupStep* steps) {
    group.weight_decay = 0.1;
    options.grad_dtype = precision::kDType<Grad>;
    if constexpr (!std::is_same_v<Copy, NoCopy>) options.copy_dtype = precision::kDType<Copy>;
    options.groups = {&group, 1};
    options.state = state;
    options.group_steps = steps;
  }
  LionCase(const LionCase&) = delete;

  static LionSegment Segment(float* param, float* const* states, const void* grad, void* copy) {
    return {param, states[0], grad, copy, kSize, 0};
  }
  LionParameters Parameters() const { return MakeLionParameters(options); }
  absl::Status Run(const LionSegment& segment, device::Stream& stream) const {
    return Lion({&segment, 1}, options, stream);
  }

  LionGroup group;
  LionOptions options;
};

// One step on the emulator and on the CPU.
template <template <typename, typename> typename Case, typename Grad, typename Copy, int kCapacity>
Counted RunBoth(CountedKernels& device, bool decoupled, const Shifts& shifts) {
  using ThisCase = Case<Grad, Copy>;
  using Policy = typename ThisCase::Policy;
  using CopyArray = std::conditional_t<std::is_same_v<Copy, NoCopy>, float, Copy>;
  constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  constexpr int kStates = Policy::kStates;
  std::mt19937 random(71);
  GuardedArray<float> param(kSize, 0);
  std::vector<GuardedArray<float>> states(kStates, GuardedArray<float>(kSize, 0));
  GuardedArray<Grad> grad(kSize, 0);
  GuardedArray<CopyArray> copy(kSize, 0);
  FillTypical(param, random);
  FillTypical(grad, random, 100.0f);
  for (auto& array : states) {
    FillTypical(array, random);
    for (int64_t i = 0; i < kSize; ++i) array[i] = std::fabs(array[i]);
  }
  StepState state = {};
  state.grad_multiplier = 0.0123f;
  state.step = 3;
  const GroupStep step = {1e-3f, 3.7e-3f, 18.3f};

  float* const device_param = device.Upload("param", param.data(), kSize, shifts.param);
  float* device_states[2] = {};
  for (int k = 0; k < kStates; ++k) {
    device_states[k] = device.Upload("state", states[k].data(), kSize, shifts.state);
  }
  const Grad* const device_grad = device.Upload("grad", grad.data(), kSize, shifts.grad);
  CopyArray* const device_copy = device.Upload("copy", copy.data(), kSize, shifts.copy);
  const auto segment =
      ThisCase::Segment(device_param, device_states, device_grad, kHasCopy ? device_copy : nullptr);
  UpdateArguments<Policy, kCapacity> arguments = {};
  arguments.parameters = ThisCase(decoupled, device.Upload("step state", &state, 1),
                                  device.Upload("group steps", &step, 1))
                             .Parameters();
  arguments.batch.segments[0] = segment;
  arguments.batch.first_tile[1] = UpdateLayout<Policy, Grad, Copy>(segment).Tiles(kSize);
  arguments.batch.count = 1;
  const Counted counted =
      device.Launch(absl::StrCat(ThisCase::kKernel, "<", TypeName<Grad>::kInKernel, ", ",
                                 TypeName<Copy>::kInKernel, ", ", kCapacity, ">"),
                    kSize, arguments.batch.tiles(), kTileThreads, arguments);

  float* host_states[2] = {};
  for (int k = 0; k < kStates; ++k) host_states[k] = states[k].data();
  const CpuRun cpu = OnCpu(1);
  EXPECT_OK(ThisCase(decoupled, &state, &step)
                .Run(ThisCase::Segment(param.data(), host_states, grad.data(),
                                       kHasCopy ? static_cast<void*>(copy.data()) : nullptr),
                     *cpu.stream));
  EXPECT_OK(cpu.stream->Synchronize());
  const auto expect_same = [&](const auto& host, const auto* on_device, const char* what) {
    const auto values = device.Download(on_device, kSize);
    int64_t wrong = 0;
    for (int64_t i = 0; i < kSize; ++i) {
      wrong += SameBits(static_cast<float>(values[i]), static_cast<float>(host[i])) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << ThisCase::kName << ", " << what << ", " << shifts.ToString();
  };
  expect_same(param, device_param, "param");
  for (int k = 0; k < kStates; ++k) expect_same(states[k], device_states[k], "state");
  expect_same(copy, device_copy, "copy");
  EXPECT_TRUE(device.SurroundingsAreIntact());
  return counted;
}

template <template <typename, typename> typename Case, typename Grad, typename Copy>
void CountMix() {
  using ThisCase = Case<Grad, Copy>;
  constexpr int64_t kFloats = 2 * (1 + ThisCase::Policy::kStates) * sizeof(float);
  constexpr int64_t kCopy = std::is_same_v<Copy, NoCopy> ? 0 : sizeof(Copy);
  constexpr ElementBytes kBytes = {kFloats + sizeof(Grad) + kCopy,
                                   kFloats + (sizeof(Grad) == 4 ? 4 : 0)};
  const std::string mix = absl::StrCat(ThisCase::kName, " ", TypeName<Grad>::kInTable, ", copy ",
                                       TypeName<Copy>::kInTable);
  CountedKernels device(ThisCase::kName);
  const auto run = [&](bool decoupled, const Shifts& shifts) {
    return RunBoth<Case, Grad, Copy, kFewSegments>(device, decoupled, shifts);
  };
  ExpectWholeSectors(mix + ", aligned", run(true, {}), kBytes);
  // The same distance modulo a sector of each type.
  ExpectWholeSectors(mix + ", 13 past", run(false, {5, 13, 13, 5}), kBytes);
  // Chunks start at the sectors of the narrowest array, the gradient if the copy is as wide.
  constexpr bool kAtCopy = kCopy != 0 && kCopy < static_cast<int64_t>(sizeof(Grad));
  constexpr int64_t kGrad = sizeof(Grad);
  ExpectSideBySide(
      mix + ", apart", run(true, {1, 3, 2, 6}), kBytes,
      MostSectors({{4, 0, kFloats / 2}, {kGrad, kAtCopy ? 0 : kGrad, kAtCopy ? kGrad : 0}}),
      MostSectors({{4, 0, kFloats / 2}, {2, kAtCopy ? kCopy : 0, kAtCopy ? 0 : kCopy}}));
}

TEST(UpdateCountersTest, AdamMovesWholeSectors) {
#define BRIGADE_COUNT(Grad, Copy) CountMix<AdamCase, Grad, Copy>();
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_COUNT)
#undef BRIGADE_COUNT
}

TEST(UpdateCountersTest, SgdMovesWholeSectors) {
#define BRIGADE_COUNT(Grad, Copy) CountMix<SgdCase, Grad, Copy>();
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_COUNT)
#undef BRIGADE_COUNT
}

TEST(UpdateCountersTest, LionMovesWholeSectors) {
#define BRIGADE_COUNT(Grad, Copy) CountMix<LionCase, Grad, Copy>();
  BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_COUNT)
#undef BRIGADE_COUNT
}

TEST(UpdateCountersTest, LongListsMoveTheSame) {
  CountedKernels adam("adam");
  ExpectWholeSectors("adam, long list",
                     RunBoth<AdamCase, float, NoCopy, AdamPolicy::kMaxSegments>(adam, true, {}),
                     {28, 28});
  CountedKernels sgd("sgd");
  ExpectWholeSectors("sgd, long list",
                     RunBoth<SgdCase, float, NoCopy, SgdPolicy::kMaxSegments>(sgd, true, {}),
                     {20, 20});
}

}  // namespace
}  // namespace brigade::kernels
