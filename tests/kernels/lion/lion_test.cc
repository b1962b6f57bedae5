#include "brigade/kernels/lion/lion.h"

#include <cmath>
#include <limits>
#include <vector>

#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/kernels/update_testing.h"
#include "brigade/tests/spec/optimizers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

template <typename Grad, typename Copy>
class LionList : public MomentList<LionSegment, Grad, Copy> {
 public:
  using MomentList<LionSegment, Grad, Copy>::MomentList;

  void Specify(const std::vector<spec::LionRule>& rules, const std::vector<GroupStep>& steps,
               const StepState& state) {
    this->SpecifyEach([&](int32_t group, float grad, float& param, float& m) {
      const spec::LionElement x =
          spec::LionUpdate({param, m}, grad, state.grad_multiplier, rules[group], steps[group].lr);
      param = x.param;
      m = x.m;
    });
  }
};

struct LionSetting {
  LionSetting() {
    for (const spec::LionRule& rule : rules) {
      groups.push_back({rule.beta1, rule.beta2, rule.weight_decay});
    }
    options.groups = groups;
    options.state = &state;
    options.group_steps = steps.data();
    state.grad_multiplier = 0.37f;
    state.step = 1;
  }
  LionSetting(const LionSetting&) = delete;

  std::vector<spec::LionRule> rules = {{.weight_decay = 0.01},
                                       {.beta1 = 0.95, .beta2 = 0.5, .weight_decay = 0.1}};
  std::vector<LionGroup> groups;
  std::vector<GroupStep> steps = {{0.05f, 0, 0}, {0.3f, 0, 0}};
  StepState state = {};
  LionOptions options;
};

template <typename Grad, typename Copy>
void RunGpuBodies(const LionSetting& setting, const LionList<Grad, Copy>& list) {
  RunUpdateThreads<LionPolicy, Grad, Copy>(MakeLionParameters(setting.options), list.segments);
}

template <typename Types>
class LionTypedTest : public ::testing::Test {
 protected:
  using List = LionList<typename Types::first_type, typename Types::second_type>;

  LionTypedTest() {
    using Copy = typename Types::second_type;
    setting.options.grad_dtype = precision::kDType<typename Types::first_type>;
    if constexpr (!std::is_same_v<Copy, NoCopy>) {
      setting.options.copy_dtype = precision::kDType<Copy>;
    }
  }

  LionSetting setting;
};

TYPED_TEST_SUITE(LionTypedTest, UpdateTypePairs);

TYPED_TEST(LionTypedTest, GivesTheSpecificationsBitsOnEveryCpu) {
  LionSetting& setting = this->setting;
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    typename TestFixture::List list(InterestingSizes(), 21, 1);
    for (setting.state.step = 1; setting.state.step <= 2; ++setting.state.step) {
      ASSERT_OK(Lion(list.segments, setting.options, stream));
      ASSERT_OK(stream.Synchronize());
      list.Specify(setting.rules, setting.steps, setting.state);
    }
    list.ExpectMatch(how);
  });
}

TYPED_TEST(LionTypedTest, GivesTheSpecificationsBitsInTheGpuThreads) {
  LionSetting& setting = this->setting;
  for (const int spread : {0, 1}) {
    typename TestFixture::List list(InterestingSizes(), 22, spread);
    setting.state.step = 1 + spread;
    RunGpuBodies(setting, list);
    list.Specify(setting.rules, setting.steps, setting.state);
    list.ExpectMatch("GPU threads");
  }
}

TYPED_TEST(LionTypedTest, LeavesEveryBitWhenTheSkipFlagIsSet) {
  const CpuRun cpu = OnCpu(2);
  LionSetting& setting = this->setting;
  setting.state.skip = 1;
  typename TestFixture::List list({100, 5000}, 23, 0);
  ASSERT_OK(Lion(list.segments, setting.options, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  RunGpuBodies(setting, list);
  list.ExpectMatch("skipped");
}

TYPED_TEST(LionTypedTest, TakesMoreSegmentsThanOneLaunchHolds) {
  LionSetting& setting = this->setting;
  typename TestFixture::List list(std::vector<int64_t>(LionPolicy::kMaxSegments + 3, 2), 25, 0);
  RunGpuBodies(setting, list);
  list.Specify(setting.rules, setting.steps, setting.state);
  list.ExpectMatch("GPU threads");
}

class LionTest : public ::testing::Test {
 protected:
  LionTest() : list_({10, 20}, 24, 0), cpu_(OnCpu(1)) {}

  absl::Status Run() { return Lion(list_.segments, setting_.options, *cpu_.stream); }
  void ExpectNothingHappened() {
    ASSERT_OK(cpu_.stream->Synchronize());
    list_.ExpectMatch("after an error");
  }

  LionSetting setting_;
  LionList<float, NoCopy> list_;
  CpuRun cpu_;
};

// Rate 1/4, betas 1/2 and 3/4: directions 2, -2 and 0, of a NaN NaN.
TEST_F(LionTest, GivesTheAnswerWorkedOutByHand) {
  float param[] = {1, 1, 1, 1};
  float m[] = {0, 0, 2, 0};
  const float grad[] = {4, -4, -2, std::numeric_limits<float>::quiet_NaN()};
  const LionGroup group = {.beta1 = 0.5, .beta2 = 0.75};
  const float lr = 0.25f;
  LionOptions options;
  options.groups = {&group, 1};
  options.one_step = OneStep{.step = 1, .lr = &lr};
  const LionSegment segment = {param, m, grad, nullptr, 4, 0};
  ASSERT_OK(Lion({&segment, 1}, options, *cpu_.stream));
  ASSERT_OK(cpu_.stream->Synchronize());
  EXPECT_THAT(std::vector<float>(param, param + 3), ::testing::ElementsAre(0.75f, 1.25f, 1.0f));
  EXPECT_THAT(std::vector<float>(m, m + 3), ::testing::ElementsAre(1.0f, -1.0f, 1.0f));
  EXPECT_TRUE(std::isnan(param[3]) && std::isnan(m[3]));
}

TEST_F(LionTest, RejectsHyperParametersOutOfRange) {
  struct Bad {
    double LionGroup::*member;
    double value;
    const char* message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Bad& bad :
       std::vector<Bad>{{&LionGroup::beta1, 1.0, "beta1 of group 0 is 1"},
                        {&LionGroup::beta1, nan, "beta1 of group 0 is nan"},
                        {&LionGroup::beta2, -0.5, "beta2 of group 0 is -0.5"},
                        {&LionGroup::weight_decay, -2, "weight_decay of group 0 is -2"}}) {
    const LionGroup good = setting_.groups[0];
    setting_.groups[0].*bad.member = bad.value;
    EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
    setting_.groups[0] = good;
  }
  ExpectNothingHappened();
}

TEST_F(LionTest, RejectsEveryBadArray) {
  BadArrays arrays("lion");
  LionSetting setting;
  setting.options.grad_dtype = DType::kBFloat16;
  setting.options.copy_dtype = DType::kFloat16;
  std::vector<LionSegment> segments(2);
  for (int32_t i = 0; i < 2; ++i) {
    LionSegment& s = segments[i];
    const std::string of = " of segment " + std::to_string(i);
    s.size = 10 + i;
    s.group = i;
    arrays.Add("param" + of, s.param, s.size, BadArrays::kWritten);
    arrays.Add("m" + of, s.m, s.size, BadArrays::kWritten);
    arrays.Add("grad" + of, s.grad, s.size, 2, 2, BadArrays::kRead);
    arrays.Add("param_copy" + of, s.param_copy, s.size, 2, 2, BadArrays::kWritten);
  }
  arrays.Add("state", setting.options.state, 1, BadArrays::kRead);
  arrays.Add("group_steps", setting.options.group_steps, 2, BadArrays::kRead);
  *const_cast<StepState*>(setting.options.state) = setting.state;
  arrays.ExpectRefused(*cpu_.stream, [&] { return Lion(segments, setting.options, *cpu_.stream); });
}

TEST_F(LionTest, RejectsUnsupportedTypesAndGroups) {
  list_.segments[1].group = -1;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("segment 1 is in group -1, but there are 2")));
  list_.segments[1].group = 1;
  setting_.options.grad_dtype = DType::kFloat64;
  EXPECT_THAT(Run(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dtype of grad is fp64")));
  ExpectNothingHappened();
}

}  // namespace
}  // namespace brigade::kernels
