#ifndef BRIGADE_TESTS_KERNELS_GPU_STEP_LAUNCHES_H_
#define BRIGADE_TESTS_KERNELS_GPU_STEP_LAUNCHES_H_

// Every launch that reads the values of an optimizer's step, over one array of floats: its four
// parts of kStepSize are a parameter, two states and a gradient, or whatever the launch takes for
// them, and behind these there is room to work in.
//
//   struct Launch {
//     // Parameters of a step in device memory (state, group_steps), or of one of the host's.
//     static Parameters Make(Step... step);
//     static cudaError_t OnGpu(float* a, const Parameters& parameters);
//     // The same on the CPU, where the first four parts then have the same bits.
//     static StepError OnCpu(float* a, const Parameters& parameters);
//   };

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "brigade/kernels/adafactor/adafactor_cpu.h"
#include "brigade/kernels/adafactor/adafactor_cuda.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"
#include "brigade/kernels/adam/adam_cpu.h"
#include "brigade/kernels/adam/adam_cuda.h"
#include "brigade/kernels/adam/adam_parameters.h"
#include "brigade/kernels/adam8/adam8_cpu.h"
#include "brigade/kernels/adam8/adam8_cuda.h"
#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/lamb/lamb_cuda.h"
#include "brigade/kernels/lamb/lamb_parameters.h"
#include "brigade/kernels/lion/lion_cpu.h"
#include "brigade/kernels/lion/lion_cuda.h"
#include "brigade/kernels/lion/lion_parameters.h"
#include "brigade/kernels/muon/muon_cpu.h"
#include "brigade/kernels/muon/muon_cuda.h"
#include "brigade/kernels/muon/muon_parameters.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cuda.h"
#include "brigade/kernels/sgd/sgd_cpu.h"
#include "brigade/kernels/sgd/sgd_cuda.h"
#include "brigade/kernels/sgd/sgd_parameters.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_parameters.h"

namespace brigade::kernels {

inline constexpr int64_t kStepSize = 1000;
inline constexpr int64_t kStepRows = 25, kStepColumns = 40;
// Aligned for doubles where the array is.
inline constexpr int64_t kStepWork = 4 * kStepSize;
inline constexpr int64_t kStepFloats = 6 * kStepSize;
static_assert(kStepRows * kStepColumns == kStepSize);
static_assert(2 * AdafactorWorkspaceSize(kStepRows, kStepColumns) <= kStepFloats - kStepWork);

inline std::vector<float> StepArrays() {
  std::vector<float> arrays(kStepFloats);
  for (int64_t i = 0; i < kStepFloats; ++i) arrays[i] = 0.001f * static_cast<float>(i % 977 + 1);
  return arrays;
}
inline LambSums* LambWork(float* a) { return reinterpret_cast<LambSums*>(a + kStepWork); }

struct AdamLaunch {
  using Parameters = AdamParameters;
  template <typename... Step>
  static Parameters Make(const Step&... step) {
    static constexpr AdamGroup kGroup = {0.9, 0.999, 1e-8, 0.1};
    return MakeAdamParameters(&kGroup, 1, WeightDecayMode::kDecoupled, step...);
  }
  static AdamSegment Segment(float* a) {
    return {a, a + kStepSize, a + 2 * kStepSize, a + 3 * kStepSize, nullptr, kStepSize, 0};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const AdamSegment segment = Segment(a);
    return LaunchAdam<float, NoCopy>(&segment, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return AdamRange<float, NoCopy>(Segment(a), parameters, 0, kStepSize);
  }
};

struct Adam8Launch : AdamLaunch {
  // Codes are the bytes of numbers, and scales are numbers.
  static Adam8Segment Segment(float* a) {
    auto* const codes = reinterpret_cast<uint8_t*>(a + kStepSize);
    float* const scales = a + 2 * kStepSize;
    return {a,
            codes,
            codes + kStepSize,
            scales,
            scales + MomentBlocks(kStepSize),
            a + 3 * kStepSize,
            nullptr,
            kStepSize,
            0};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const Adam8Segment segment = Segment(a);
    return LaunchAdam8<float, NoCopy>(&segment, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return Adam8Range<float, NoCopy>(Segment(a), parameters, 0, kStepSize);
  }
};

struct SgdLaunch {
  using Parameters = SgdParameters;
  template <typename... Step>
  static Parameters Make(const Step&... step) {
    static constexpr SgdGroup kGroup = {0.9, 0.3, 0.1, false};
    return MakeSgdParameters(&kGroup, 1, WeightDecayMode::kCoupled, step...);
  }
  static SgdSegment Segment(float* a) {
    return {a, a + kStepSize, a + 3 * kStepSize, nullptr, kStepSize, 0};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const SgdSegment segment = Segment(a);
    return LaunchSgd<float, NoCopy>(&segment, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return SgdRange<float, NoCopy>(Segment(a), parameters, 0, kStepSize);
  }
};

struct LionLaunch {
  using Parameters = LionParameters;
  template <typename... Step>
  static Parameters Make(const Step&... step) {
    static constexpr LionGroup kGroup = {.weight_decay = 0.1};
    return MakeLionParameters(&kGroup, 1, step...);
  }
  static LionSegment Segment(float* a) {
    return {a, a + kStepSize, a + 3 * kStepSize, nullptr, kStepSize, 0};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const LionSegment segment = Segment(a);
    return LaunchLion<float, NoCopy>(&segment, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return LionRange<float, NoCopy>(Segment(a), parameters, 0, kStepSize);
  }
};

struct MuonMomentumLaunch {
  using Parameters = MuonParameters;
  template <typename... Step>
  static Parameters Make(const Step&... step) {
    static constexpr MuonGroup kGroup = {};
    return MakeMuonParameters(&kGroup, 1, step...);
  }
  static MuonMomentumSegment Segment(float* a) {
    return {a + kStepSize, a + 2 * kStepSize, a + 3 * kStepSize, nullptr, kStepSize, 0};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const MuonMomentumSegment segment = Segment(a);
    return LaunchMuonMomentum<float>(&segment, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return MuonMomentumRange<float>(Segment(a), parameters, 0, kStepSize);
  }
};

struct MuonParamsLaunch : MuonMomentumLaunch {
  static MuonParamSegment Segment(float* a) {
    return {a, a + 2 * kStepSize, nullptr, kStepSize, 0, 0.5f, 3.0f};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const MuonParamSegment segment = Segment(a);
    return LaunchMuonParams<NoCopy>(&segment, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return MuonParamRange<NoCopy>(Segment(a), parameters, 0, kStepSize);
  }
};

struct AdafactorFactorsLaunch {
  using Parameters = AdafactorParameters;
  // With the group's rates, which relative steps would not read.
  template <typename... Step>
  static Parameters Make(const Step&... step) {
    static constexpr AdafactorGroup kGroup = {0.9, 0.1};
    AdafactorSettings settings;
    settings.relative_step = false;
    return MakeAdafactorParameters(&kGroup, 1, settings, step...);
  }
  static AdafactorTensor Tensor(float* a) {
    return {a,
            a + 3 * kStepSize,
            a + kStepSize,
            a + 2 * kStepSize,
            reinterpret_cast<double*>(a + kStepWork),
            kStepRows,
            kStepColumns,
            0};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const AdafactorTensor tensor = Tensor(a);
    return LaunchAdafactorFactors<float>(&tensor, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return AdafactorFactorsOf<float>(Tensor(a), parameters);
  }
};

struct AdafactorParamsLaunch : AdafactorFactorsLaunch {
  static AdafactorSegment Segment(float* a) {
    return {a,         a + kStepSize, a + 3 * kStepSize,
            nullptr,   kStepSize,     a + 2 * kStepSize,
            kStepRows, kStepColumns,  0,
            0};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const AdafactorSegment segment = Segment(a);
    return LaunchAdafactorParams<float, NoCopy>(&segment, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return AdafactorParamRange<float, NoCopy>(Segment(a), parameters, 0, kStepSize);
  }
};

struct LambMomentsLaunch {
  using Parameters = LambParameters;
  template <typename... Step>
  static Parameters Make(const Step&... step) {
    static constexpr LambGroup kGroup = {.weight_decay = 0.1};
    return MakeLambParameters(&kGroup, 1, step...);
  }
  static LambSegment Segment(float* a) {
    return {a, a + kStepSize,    a + 2 * kStepSize, a + 3 * kStepSize, nullptr, kStepSize,
            0, a + 3 * kStepSize};
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const LambSegment segment = Segment(a);
    return LaunchLambMoments<float>(&segment, 1, parameters, LambWork(a), nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return LambMomentsRange<float>(Segment(a), parameters, 0, kStepSize, LambWork(a));
  }
};

// With a number for the trust ratio.
struct LambParamsLaunch : LambMomentsLaunch {
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const LambSegment segment = Segment(a);
    return LaunchLambParams<NoCopy>(&segment, 1, parameters, nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    const LambSegment segment = Segment(a);
    return LambParamRange<NoCopy>(segment, parameters, *segment.trust, 0, kStepSize);
  }
};

// All passes.
struct LambLaunch : LambMomentsLaunch {
  static LambSegment Segment(float* a) {
    LambSegment segment = LambMomentsLaunch::Segment(a);
    segment.trust = nullptr;
    return segment;
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const LambSegment segment = Segment(a);
    return LaunchLamb<float, NoCopy>(&segment, 1, parameters, LambWork(a), nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    const StepError error = LambMomentsLaunch::OnCpu(a, parameters);
    if (error != StepError::kNone) return error;
    const LambSegment segment = Segment(a);
    const float trust = LambTrustOf(segment, parameters, LambWork(a));
    return LambParamRange<NoCopy>(segment, parameters, trust, 0, kStepSize);
  }
};

struct OneBitLambSendLaunch : LambMomentsLaunch {
  static OneBitLambMessage Message(float* a) {
    return {a + kStepSize, a + 3 * kStepSize, a + 2 * kStepSize, kStepSize, 0, 0};
  }
  // The tensor's numbers are three of the parameter's.
  static const OneBitLambNumbers* Numbers(float* a) {
    return reinterpret_cast<const OneBitLambNumbers*>(a);
  }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const OneBitLambMessage message = Message(a);
    return LaunchOneBitLambSend<float>(&message, 1, parameters, Numbers(a), nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return OneBitLambSendRange<float>(Message(a), parameters, Numbers(a)->scale, 0, kStepSize);
  }
};

struct OneBitLambMomentsLaunch : LambMomentsLaunch {
  static OneBitLambSegment Segment(float* a) {
    return {a, a + kStepSize, a + 2 * kStepSize, a + 3 * kStepSize, a, kStepSize, 0, 0, 0};
  }
  static OneBitLambSums* Sums(float* a) { return reinterpret_cast<OneBitLambSums*>(a + kStepWork); }
  static cudaError_t OnGpu(float* a, const Parameters& parameters) {
    const OneBitLambSegment segment = Segment(a);
    return LaunchOneBitLambMoments(&segment, 1, parameters, Sums(a), nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& parameters) {
    return OneBitLambMomentsRange(Segment(a), parameters, 0, kStepSize, Sums(a));
  }
};

template <ZeroOneCall kCall>
struct ZeroOneLaunch {
  // Without what lies in the array.
  using Parameters = ZeroOneRates;
  static Parameters Make(const StepState* state, const GroupStep* group_steps) {
    return {kCall, 1, const_cast<StepState*>(state), group_steps, nullptr, nullptr, nullptr};
  }
  static Parameters Make(const OneStep& step) {
    return MakeZeroOneRates(kCall, 1, step, nullptr, nullptr, nullptr);
  }
  static Parameters Over(float* a, Parameters rates) {
    rates.betas = a;
    rates.numbers = reinterpret_cast<ZeroOneNumbers*>(a + kStepSize);
    rates.meeting = reinterpret_cast<GroupStep*>(a + 2 * kStepSize);
    return rates;
  }
  static cudaError_t OnGpu(float* a, const Parameters& rates) {
    return LaunchZeroOneRates(Over(a, rates), nullptr);
  }
  static StepError OnCpu(float* a, const Parameters& rates) { return CountRates(Over(a, rates)); }
};

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_GPU_STEP_LAUNCHES_H_
