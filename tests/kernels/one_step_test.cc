// A step whose numbers come from the host, and steps whose values nobody filled.

#include <limits>
#include <string>
#include <vector>

#include "brigade/kernels/adafactor/adafactor_cpu.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"
#include "brigade/kernels/adam/adam.h"
#include "brigade/kernels/adam/adam_cpu.h"
#include "brigade/kernels/adam8/adam8_cpu.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/kernels/lamb/lamb_parameters.h"
#include "brigade/kernels/lion/lion_cpu.h"
#include "brigade/kernels/lion/lion_parameters.h"
#include "brigade/kernels/muon/muon_cpu.h"
#include "brigade/kernels/muon/muon_parameters.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"
#include "brigade/kernels/sgd/sgd.h"
#include "brigade/kernels/sgd/sgd_cpu.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/tests/kernels/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kSize = 3001;

struct Arrays {
  Arrays() {
    std::mt19937 random(3);
    for (GuardedArray<float>* array : {&param, &first, &second, &grad}) {
      FillTypical(*array, random);
    }
    for (int64_t i = 0; i < kSize; ++i) second[i] = std::fabs(second[i]);
  }
  // Two segments, in two groups.
  std::vector<AdamSegment> ForAdam() {
    const auto at = [&](int64_t i, int64_t size, int32_t group) -> AdamSegment {
      return {param.data() + i,
              first.data() + i,
              second.data() + i,
              grad.data() + i,
              nullptr,
              size,
              group};
    };
    return {at(0, 1000, 0), at(1000, kSize - 1000, 1)};
  }
  std::vector<SgdSegment> ForSgd() {
    const auto at = [&](int64_t i, int64_t size, int32_t group) -> SgdSegment {
      return {param.data() + i, first.data() + i, grad.data() + i, nullptr, size, group};
    };
    return {at(0, 1000, 0), at(1000, kSize - 1000, 1)};
  }
  void ExpectSame(const Arrays& other, const std::string& how) const {
    EXPECT_TRUE(Matches(param, Values(other.param))) << how << ", param";
    EXPECT_TRUE(Matches(first, Values(other.first))) << how << ", first state";
    EXPECT_TRUE(Matches(second, Values(other.second))) << how << ", second state";
  }
  GuardedArray<float> param{kSize, 0}, first{kSize, 0}, second{kSize, 0}, grad{kSize, 0};
};

// What the launcher's kernels do, thread by thread.
template <typename Policy, typename Segment, typename Parameters>
void RunGpuThreads(const std::vector<Segment>& segments, const Parameters& parameters) {
  auto arguments = std::make_unique<UpdateArguments<Policy>>();
  arguments->parameters = parameters;
  const auto tiles_of = [](const Segment& s) {
    return UpdateLayout<Policy, float, NoCopy>(s).Tiles(s.size);
  };
  ForEachBatch(segments.data(), static_cast<int64_t>(segments.size()), kMaxGridBlocks, tiles_of,
               arguments->batch, true, [&](int64_t) {
                 ForEachGpuThread(arguments->batch.tiles(), kTileThreads,
                                  [&](int64_t tile, int thread) {
                                    UpdateThread<Policy, float, NoCopy>(*arguments, tile, thread);
                                  });
                 return true;
               });
}

const std::vector<AdamGroup> kAdamGroups = {{.weight_decay = 0.1}, {.beta1 = 0.8, .beta2 = 0.95}};
const std::vector<SgdGroup> kSgdGroups = {{.momentum = 0.9, .dampening = 0.3}, {.momentum = 0.5}};
const std::vector<float> kRates = {1e-3f, 2e-2f};

// The device-resident values of steps 1, 2, ..., as StepControl writes them without clipping.
class Steps {
 public:
  Steps() : cpu_(OnCpu(1)) {
    options_.grad_divisor = 4;
    for (const AdamGroup& group : kAdamGroups) betas_.push_back({group.beta1, group.beta2});
    options_.betas = betas_;
    options_.lr_table = kRates.data();
    options_.lr_table_size = 1;
    state_ = InitialStepState({.dynamic = false, .initial_scale = 8});
    options_.loss_scale = {.dynamic = false, .initial_scale = 8};
  }
  void Next() {
    const GradStats stats = {1.0, 1};
    ASSERT_OK(StepControl({&stats, 1}, options_, &state_, group_steps_, *cpu_.stream));
    ASSERT_OK(cpu_.stream->Synchronize());
  }
  const StepState* state() const { return &state_; }
  const GroupStep* group_steps() const { return group_steps_; }
  OneStep ForHost() const { return {state_.step, kRates.data(), 1.0f / 32.0f}; }

 private:
  CpuRun cpu_;
  std::vector<StepBetas> betas_;
  StepControlOptions options_;
  StepState state_;
  GroupStep group_steps_[2] = {};
};

TEST(OneStepTest, AdamGivesTheBitsOfTheResidentStep) {
  Steps steps;
  Arrays resident, ranges, threads;
  for (int step = 1; step <= 5; ++step) {
    steps.Next();
    ASSERT_EQ(steps.state()->step, step);
    const auto with = MakeAdamParameters(kAdamGroups.data(), 2, WeightDecayMode::kDecoupled,
                                         steps.state(), steps.group_steps());
    const auto without =
        MakeAdamParameters(kAdamGroups.data(), 2, WeightDecayMode::kDecoupled, steps.ForHost());
    for (const AdamSegment& s : resident.ForAdam()) {
      ASSERT_EQ((AdamRange<float, NoCopy>(s, with, 0, s.size)), StepError::kNone);
    }
    for (const AdamSegment& s : ranges.ForAdam()) {
      ASSERT_EQ((AdamRange<float, NoCopy>(s, without, 0, s.size)), StepError::kNone);
    }
    RunGpuThreads<AdamPolicy>(threads.ForAdam(), without);
  }
  ranges.ExpectSame(resident, "ranges");
  threads.ExpectSame(resident, "GPU threads");
}

TEST(OneStepTest, SgdGivesTheBitsOfTheResidentStep) {
  Steps steps;
  Arrays resident, ranges, threads;
  for (int step = 1; step <= 3; ++step) {
    steps.Next();
    const auto with = MakeSgdParameters(kSgdGroups.data(), 2, WeightDecayMode::kCoupled,
                                        steps.state(), steps.group_steps());
    const auto without =
        MakeSgdParameters(kSgdGroups.data(), 2, WeightDecayMode::kCoupled, steps.ForHost());
    for (const SgdSegment& s : resident.ForSgd()) {
      ASSERT_EQ((SgdRange<float, NoCopy>(s, with, 0, s.size)), StepError::kNone);
    }
    for (const SgdSegment& s : ranges.ForSgd()) {
      ASSERT_EQ((SgdRange<float, NoCopy>(s, without, 0, s.size)), StepError::kNone);
    }
    RunGpuThreads<SgdPolicy>(threads.ForSgd(), without);
  }
  ranges.ExpectSame(resident, "ranges");
  threads.ExpectSame(resident, "GPU threads");
}

TEST(OneStepTest, RefusesParametersThatNameNoStep) {
  StepState state = {};
  state.step = 1;
  const GroupStep steps[] = {{1e-3f, 1e-3f, 1.0f}, {1e-3f, 1e-3f, 1.0f}};
  Arrays arrays;
  const auto adam = [&](const AdamParameters& parameters) {
    return AdamRange<float, NoCopy>(arrays.ForAdam()[1], parameters, 0, 100);
  };
  const auto sgd = [&](const SgdParameters& parameters) {
    return SgdRange<float, NoCopy>(arrays.ForSgd()[1], parameters, 0, 100);
  };
  const auto mode = WeightDecayMode::kDecoupled;
  const OneStep step0 = {0, kRates.data(), 1.0f};
  EXPECT_EQ(adam(AdamParameters()), StepError::kNoStep);
  EXPECT_EQ(sgd(SgdParameters()), StepError::kNoStep);
  EXPECT_EQ(adam(MakeAdamParameters(kAdamGroups.data(), 2, mode, step0)), StepError::kNoStep);
  EXPECT_EQ(sgd(MakeSgdParameters(kSgdGroups.data(), 2, mode, step0)), StepError::kNoStep);
  const std::vector<AdamGroup> many_adam(kMaxAdamGroups + 1);
  const std::vector<SgdGroup> many_sgd(kMaxSgdGroups + 1);
  const std::vector<float> rates(kMaxAdamGroups + 1, 0.1f);
  const OneStep step1 = {1, rates.data(), 1.0f};
  EXPECT_EQ(adam(MakeAdamParameters(many_adam.data(), kMaxAdamGroups + 1, mode, step1)),
            StepError::kNoStep);
  EXPECT_EQ(sgd(MakeSgdParameters(many_sgd.data(), kMaxSgdGroups + 1, mode, step1)),
            StepError::kNoStep);
  const std::vector<LionGroup> many_lion(kMaxLionGroups + 1);
  const std::vector<LambGroup> many_lamb(kMaxLambGroups + 1);
  EXPECT_FALSE(NamesStep(MakeLionParameters(many_lion.data(), kMaxLionGroups + 1, step1)));
  EXPECT_FALSE(NamesStep(MakeLambParameters(many_lamb.data(), kMaxLambGroups + 1, step1)));
  // The segment's group is none of the parameters'.
  EXPECT_EQ(adam(MakeAdamParameters(many_adam.data(), 1, mode, step1)),
            StepError::kGroupStepNotFilled);
  EXPECT_EQ(sgd(MakeSgdParameters(many_sgd.data(), 1, mode, step1)),
            StepError::kGroupStepNotFilled);
  // No rates.
  EXPECT_EQ(adam(MakeAdamParameters(kAdamGroups.data(), 2, mode, OneStep())), StepError::kNoStep);
  EXPECT_EQ(sgd(MakeSgdParameters(kSgdGroups.data(), 2, mode, OneStep())), StepError::kNoStep);
  EXPECT_EQ(adam(MakeAdamParameters(kAdamGroups.data(), 2, mode, &state, nullptr)),
            StepError::kNoStep);
  EXPECT_EQ(adam(MakeAdamParameters(kAdamGroups.data(), 2, mode, nullptr, steps)),
            StepError::kNoStep);
  EXPECT_EQ(sgd(MakeSgdParameters(kSgdGroups.data(), 2, mode, &state, nullptr)),
            StepError::kNoStep);
  EXPECT_EQ(sgd(MakeSgdParameters(kSgdGroups.data(), 2, mode, nullptr, steps)), StepError::kNoStep);
  arrays.ExpectSame(Arrays(), "refused");
}

TEST(OneStepTest, MuonGivesTheBitsOfTheResidentStepAndRefusesWhatNamesNone) {
  Steps steps;
  const std::vector<MuonGroup> groups = {{}, {.momentum = 0.5, .weight_decay = 0.01}};
  Arrays resident, of_host, refused;
  const auto run = [](Arrays& a, const MuonParameters& parameters) {
    const MuonMomentumSegment momentum = {a.first.data(), a.second.data(), a.grad.data(),
                                          nullptr,        kSize,           1};
    const MuonParamSegment param = {a.param.data(), a.second.data(), nullptr, kSize, 1, 0.5f, 3.0f};
    const StepError error = MuonMomentumRange<float>(momentum, parameters, 0, kSize);
    EXPECT_EQ(MuonParamRange<NoCopy>(param, parameters, 0, kSize), error);
    return error;
  };
  for (int step = 0; step < 3; ++step) {
    steps.Next();
    const MuonParameters with =
        MakeMuonParameters(groups.data(), 2, steps.state(), steps.group_steps());
    const MuonParameters without = MakeMuonParameters(groups.data(), 2, steps.ForHost());
    ASSERT_EQ(run(resident, with), StepError::kNone);
    ASSERT_EQ(run(of_host, without), StepError::kNone);
  }
  of_host.ExpectSame(resident, "one_step");
  EXPECT_FALSE(Matches(of_host.param, Values(Arrays().param)));

  const std::vector<MuonGroup> many(kMaxOneStepGroups + 1);
  const std::vector<float> rates(kMaxOneStepGroups + 1, 0.1f);
  const OneStep step1 = {1, rates.data(), 1.0f};
  EXPECT_EQ(run(refused, MuonParameters()), StepError::kNoStep);
  EXPECT_EQ(run(refused, MakeMuonParameters(groups.data(), 2, OneStep{0, rates.data(), 1.0f})),
            StepError::kNoStep);
  EXPECT_EQ(run(refused, MakeMuonParameters(groups.data(), 2, OneStep())), StepError::kNoStep);
  EXPECT_EQ(run(refused, MakeMuonParameters(many.data(), kMaxOneStepGroups + 1, step1)),
            StepError::kNoStep);
  EXPECT_EQ(run(refused, MakeMuonParameters(groups.data(), 2, steps.state(), nullptr)),
            StepError::kNoStep);
  const StepState zeroed = {};
  EXPECT_EQ(run(refused, MakeMuonParameters(groups.data(), 2, &zeroed, steps.group_steps())),
            StepError::kStateNotFilled);
  const GroupStep empty[2] = {};
  EXPECT_EQ(run(refused, MakeMuonParameters(groups.data(), 2, steps.state(), empty)),
            StepError::kGroupStepNotFilled);
  // The segment's group is none of the parameters'.
  EXPECT_EQ(run(refused, MakeMuonParameters(groups.data(), 1, step1)),
            StepError::kGroupStepNotFilled);
  refused.ExpectSame(Arrays(), "refused");
}

TEST(OneStepTest, IsAnOptionOfThePublicCalls) {
  Steps steps;
  steps.Next();
  const CpuRun cpu = OnCpu(2);
  AdamOptions adam, adam_of_host;
  adam.groups = adam_of_host.groups = kAdamGroups;
  adam.state = steps.state();
  adam.group_steps = steps.group_steps();
  adam_of_host.one_step = steps.ForHost();
  SgdOptions sgd, sgd_of_host;
  sgd.groups = sgd_of_host.groups = kSgdGroups;
  sgd.state = steps.state();
  sgd.group_steps = steps.group_steps();
  sgd_of_host.one_step = steps.ForHost();
  Arrays resident, of_host;
  ASSERT_OK(Adam(resident.ForAdam(), adam, *cpu.stream));
  ASSERT_OK(Adam(of_host.ForAdam(), adam_of_host, *cpu.stream));
  ASSERT_OK(Sgd(resident.ForSgd(), sgd, *cpu.stream));
  ASSERT_OK(Sgd(of_host.ForSgd(), sgd_of_host, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  of_host.ExpectSame(resident, "one_step");
  EXPECT_FALSE(Matches(of_host.param, Values(Arrays().param)));
}

TEST(OneStepTest, PublicCallsNameWhatIsWrongWithIt) {
  const CpuRun cpu = OnCpu(1);
  const StepState state = {};
  const float bad_rates[] = {1e-3f, -1.0f};
  const auto expect = [&](const StepState* resident, const OneStep& step, const char* text) {
    AdamOptions adam;
    adam.groups = kAdamGroups;
    adam.state = resident;
    adam.one_step = step;
    SgdOptions sgd;
    sgd.groups = kSgdGroups;
    sgd.state = resident;
    sgd.one_step = step;
    Arrays arrays;
    EXPECT_THAT(Adam(arrays.ForAdam(), adam, *cpu.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, std::string("adam: ") + text));
    EXPECT_THAT(Sgd(arrays.ForSgd(), sgd, *cpu.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, std::string("sgd: ") + text));
  };
  const float* const rates = kRates.data();
  expect(&state, {1, rates}, "one_step is given beside state or group_steps");
  expect(nullptr, {0, rates}, "one_step has step 0, must be at least 1");
  expect(nullptr, {1, nullptr}, "one_step has no lr");
  const std::vector<AdamGroup> many(33);
  AdamOptions options;
  options.groups = many;
  options.one_step = {1, rates};
  EXPECT_THAT(Adam({}, options, *cpu.stream),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "adam: one_step is for at most 32 groups, but there are 33"));
  expect(nullptr, {1, bad_rates}, "one_step has lr -1 for group 1, must be at least 0 and finite");
  expect(nullptr, {1, rates, std::numeric_limits<float>::infinity()},
         "one_step has grad_multiplier inf, must be finite");
}

class UnfilledStepTest : public ::testing::Test {
 protected:
  UnfilledStepTest() : cpu_(OnCpu(2)) {}

  // One step on a stream: what the stream says. The arrays keep every bit then.
  absl::Status Adam() {
    AdamOptions options;
    options.groups = kAdamGroups;
    options.state = &state_;
    options.group_steps = group_steps_;
    EXPECT_OK(kernels::Adam(arrays_.ForAdam(), options, *cpu_.stream));
    return Finish();
  }
  absl::Status Sgd() {
    SgdOptions options;
    options.groups = kSgdGroups;
    options.state = &state_;
    options.group_steps = group_steps_;
    EXPECT_OK(kernels::Sgd(arrays_.ForSgd(), options, *cpu_.stream));
    return Finish();
  }
  StepError AdamOfRange(int segment) {
    const auto parameters = MakeAdamParameters(kAdamGroups.data(), 2, WeightDecayMode::kDecoupled,
                                               &state_, group_steps_);
    return AdamRange<float, NoCopy>(arrays_.ForAdam()[segment], parameters, 0, 100);
  }
  StepError SgdOfRange(int segment) {
    const auto parameters =
        MakeSgdParameters(kSgdGroups.data(), 2, WeightDecayMode::kDecoupled, &state_, group_steps_);
    return SgdRange<float, NoCopy>(arrays_.ForSgd()[segment], parameters, 0, 100);
  }
  StepError LionOfRange(int32_t group) {
    const LionGroup groups[2];
    return LionRange<float, NoCopy>(
        {arrays_.param.data(), arrays_.first.data(), arrays_.grad.data(), nullptr, kSize, group},
        MakeLionParameters(groups, 2, &state_, group_steps_), 0, 100);
  }
  StepError AdafactorOfRange(int32_t group) {
    const AdafactorGroup groups[2];
    const AdafactorSegment segment = {.param = arrays_.param.data(),
                                      .m = nullptr,
                                      .grad = arrays_.grad.data(),
                                      .param_copy = nullptr,
                                      .size = kSize,
                                      .scales = arrays_.second.data(),
                                      .rows = 1,
                                      .columns = kSize,
                                      .first = 0,
                                      .group = group};
    const AdafactorParameters parameters =
        MakeAdafactorParameters(groups, 2, {}, &state_, group_steps_);
    const StepError error = AdafactorParamRange<float, NoCopy>(segment, parameters, 0, 100);
    EXPECT_EQ(AdafactorStepError(parameters, group), error);
    return error;
  }
  StepError Adam8OfRange(int32_t group) {
    const AdamGroup groups[2];
    auto* const codes = reinterpret_cast<uint8_t*>(arrays_.first.data());
    const Adam8Segment segment = {arrays_.param.data(),
                                  codes,
                                  codes + kSize,
                                  arrays_.second.data(),
                                  arrays_.second.data(),
                                  arrays_.grad.data(),
                                  nullptr,
                                  kSize,
                                  group};
    return Adam8Range<float, NoCopy>(
        segment, MakeAdamParameters(groups, 2, WeightDecayMode::kDecoupled, &state_, group_steps_),
        0, 256);
  }
  // Of both passes that read the step's values.
  StepError LambOfRange(int32_t group) {
    const LambGroup groups[2];
    const LambParameters parameters = MakeLambParameters(groups, 2, &state_, group_steps_);
    const LambSegment segment = {arrays_.param.data(),
                                 arrays_.first.data(),
                                 arrays_.second.data(),
                                 arrays_.grad.data(),
                                 nullptr,
                                 kSize,
                                 group};
    LambSums tiles[1] = {};
    const StepError error = LambMomentsRange<float>(segment, parameters, 0, kSize, tiles);
    EXPECT_EQ(LambParamRange<NoCopy>(segment, parameters, 1.0f, 0, kSize), error);
    return error;
  }
  // Of both passes that read the step's values.
  StepError OneBitLambOfRange(int32_t group) {
    const LambGroup groups[2];
    const LambParameters parameters = MakeLambParameters(groups, 2, &state_, group_steps_);
    OneBitLambSums sums[1] = {};
    const StepError sent = OneBitLambSendRange<float>(
        {arrays_.first.data(), arrays_.grad.data(), arrays_.second.data(), kSize, group, 0},
        parameters, 3.0f, 0, 100);
    EXPECT_EQ(
        OneBitLambMomentsRange({arrays_.param.data(), arrays_.first.data(), arrays_.grad.data(),
                                arrays_.second.data(), arrays_.grad.data(), kSize, group, 0, 0},
                               parameters, 0, 100, sums),
        sent);
    return sent;
  }
  absl::Status Finish() {
    const absl::Status status = cpu_.stream->Synchronize();
    if (!status.ok()) {
      arrays_.ExpectSame(Arrays(), "after an error");
      EXPECT_OK(cpu_.stream->Reset());
    }
    return status;
  }

  CpuRun cpu_;
  Arrays arrays_;
  // As memory is that someone has filled with zeros.
  StepState state_ = {};
  GroupStep group_steps_[2] = {};
};

TEST_F(UnfilledStepTest, IsAnErrorForAState) {
  group_steps_[0] = group_steps_[1] = {1e-3f, 1e-3f, 1.0f};
  const char* const text = "state was not filled: step is 0, and skip is not set";
  EXPECT_THAT(Adam(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr(std::string("adam: ") + text)));
  EXPECT_THAT(Sgd(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr(std::string("sgd: ") + text)));
  EXPECT_EQ(AdamOfRange(0), StepError::kStateNotFilled);
  EXPECT_EQ(SgdOfRange(0), StepError::kStateNotFilled);
  EXPECT_EQ(LionOfRange(0), StepError::kStateNotFilled);
  EXPECT_EQ(AdafactorOfRange(0), StepError::kStateNotFilled);
  EXPECT_EQ(Adam8OfRange(0), StepError::kStateNotFilled);
  EXPECT_EQ(LambOfRange(0), StepError::kStateNotFilled);
  EXPECT_EQ(OneBitLambOfRange(0), StepError::kStateNotFilled);
  arrays_.ExpectSame(Arrays(), "after an error");
}

// StepControl makes no step of zeros: not one of NaN, and not one that does nothing.
TEST_F(UnfilledStepTest, IsAnErrorForAStateThatStepControlGotAsZeros) {
  const GradStats stats = {1.0, 1};
  const StepBetas betas[] = {{0.9, 0.999}, {0.8, 0.95}};
  StepControlOptions options;
  options.betas = betas;
  options.lr_table = kRates.data();
  options.lr_table_size = 1;
  options.max_grad_norm = 1.0;
  for (const bool dynamic : {false, true}) {
    options.loss_scale = {.dynamic = dynamic, .initial_scale = 8};
    ASSERT_OK(StepControl({&stats, 1}, options, &state_, group_steps_, *cpu_.stream));
    EXPECT_THAT(Adam(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("adam: state was not filled")));
    EXPECT_THAT(Sgd(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("sgd: state was not filled")));
  }
}

TEST_F(UnfilledStepTest, IsAnErrorForAGroup) {
  state_.step = 1;
  state_.grad_multiplier = 1.0f;
  group_steps_[0] = {1e-3f, 1e-3f, 1.0f};
  const char* const text = "group_steps[1] was not filled: it is zero";
  EXPECT_THAT(Adam(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr(std::string("adam: ") + text)));
  EXPECT_THAT(Sgd(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr(std::string("sgd: ") + text)));
  EXPECT_EQ(AdamOfRange(1), StepError::kGroupStepNotFilled);
  EXPECT_EQ(SgdOfRange(1), StepError::kGroupStepNotFilled);
  EXPECT_EQ(LionOfRange(1), StepError::kGroupStepNotFilled);
  EXPECT_EQ(AdafactorOfRange(1), StepError::kGroupStepNotFilled);
  EXPECT_EQ(Adam8OfRange(1), StepError::kGroupStepNotFilled);
  EXPECT_EQ(LambOfRange(1), StepError::kGroupStepNotFilled);
  EXPECT_EQ(OneBitLambOfRange(1), StepError::kGroupStepNotFilled);
  arrays_.ExpectSame(Arrays(), "after an error");
  EXPECT_EQ(AdamOfRange(0), StepError::kNone);
}

TEST_F(UnfilledStepTest, IsNoneForALearningRateOfZero) {
  state_.step = 1;
  state_.grad_multiplier = 1.0f;
  group_steps_[0] = group_steps_[1] = MakeGroupStep({0.9, 0.999}, 0.0f, 1);
  EXPECT_OK(Adam());
  // A -0 may become 0.
  EXPECT_EQ(Values(arrays_.param), Values(Arrays().param));
  EXPECT_FALSE(Matches(arrays_.first, Values(Arrays().first))) << "the moments go on";
  EXPECT_OK(Sgd());
}

TEST_F(UnfilledStepTest, IsNoneForASkippedStep) {
  state_.skip = 1;
  EXPECT_OK(Adam());
  EXPECT_OK(Sgd());
  EXPECT_EQ(AdamOfRange(0), StepError::kNone);
  arrays_.ExpectSame(Arrays(), "skipped");
}

}  // namespace
}  // namespace brigade::kernels
