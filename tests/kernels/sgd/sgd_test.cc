#include "brigade/kernels/sgd/sgd.h"

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
using ::testing::AllOf;
using ::testing::HasSubstr;

// Group 0 has momentum, group 1 none.
template <typename Grad, typename Copy>
class SgdList : public MomentList<SgdSegment, Grad, Copy> {
 public:
  SgdList(const std::vector<int64_t>& sizes, uint32_t seed, int spread)
      : MomentList<SgdSegment, Grad, Copy>(sizes, seed, spread, /*groups_with_moments=*/1) {}

  void Specify(const std::vector<spec::SgdRule>& rules, const std::vector<GroupStep>& steps,
               const StepState& state) {
    this->SpecifyEach([&](int32_t group, float grad, float& param, float& momentum) {
      const spec::SgdElement x = spec::SgdUpdate({param, momentum}, grad, state.grad_multiplier,
                                                 rules[group], steps[group].lr, state.step);
      param = x.param;
      momentum = x.momentum;
    });
  }
};

struct SgdSetting {
  SgdSetting(bool decoupled, bool nesterov) {
    rules = {{.momentum = 0.9,
              .dampening = nesterov ? 0.0 : 0.25,
              .weight_decay = 0.01,
              .nesterov = nesterov,
              .decoupled = decoupled},
             {.momentum = 0.0,
              .dampening = 0.0,
              .weight_decay = 0.1,
              .nesterov = false,
              .decoupled = decoupled}};
    for (const spec::SgdRule& rule : rules) {
      groups.push_back({rule.momentum, rule.dampening, rule.weight_decay, rule.nesterov});
    }
    options.weight_decay_mode = decoupled ? WeightDecayMode::kDecoupled : WeightDecayMode::kCoupled;
    options.groups = groups;
    options.state = &state;
    options.group_steps = steps.data();
    state.grad_multiplier = 0.37f;
    state.step = 1;
  }
  SgdSetting(const SgdSetting&) = delete;

  std::vector<spec::SgdRule> rules;
  std::vector<SgdGroup> groups;
  std::vector<GroupStep> steps = {{0.05f, 0, 0}, {0.3f, 0, 0}};
  StepState state = {};
  SgdOptions options;
};

template <typename Grad, typename Copy>
void RunGpuBodies(const SgdSetting& setting, const SgdList<Grad, Copy>& list) {
  RunUpdateThreads<SgdPolicy, Grad, Copy>(MakeSgdParameters(setting.options), list.segments);
}

template <typename Types>
class SgdTypedTest : public ::testing::Test {
 protected:
  using List = SgdList<typename Types::first_type, typename Types::second_type>;

  // Calls test(setting) for each rule, with the types set.
  template <typename Test>
  void ForEachRule(const Test& test) {
    using Copy = typename Types::second_type;
    for (const bool decoupled : {false, true}) {
      for (const bool nesterov : {false, true}) {
        SgdSetting setting(decoupled, nesterov);
        setting.options.grad_dtype = precision::kDType<typename Types::first_type>;
        if constexpr (!std::is_same_v<Copy, NoCopy>) {
          setting.options.copy_dtype = precision::kDType<Copy>;
        }
        test(setting);
      }
    }
  }
};

TYPED_TEST_SUITE(SgdTypedTest, UpdateTypePairs);

TYPED_TEST(SgdTypedTest, GivesTheSpecificationsBitsOnEveryCpu) {
  this->ForEachRule([](SgdSetting& setting) {
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      typename TestFixture::List list(InterestingSizes(), 21, 1);
      for (setting.state.step = 1; setting.state.step <= 2; ++setting.state.step) {
        ASSERT_OK(Sgd(list.segments, setting.options, stream));
        ASSERT_OK(stream.Synchronize());
        list.Specify(setting.rules, setting.steps, setting.state);
      }
      list.ExpectMatch(how);
    });
  });
}

TYPED_TEST(SgdTypedTest, GivesTheSpecificationsBitsInTheGpuThreads) {
  this->ForEachRule([](SgdSetting& setting) {
    for (const int spread : {0, 1}) {
      typename TestFixture::List list(InterestingSizes(), 22, spread);
      setting.state.step = 1 + spread;
      RunGpuBodies(setting, list);
      list.Specify(setting.rules, setting.steps, setting.state);
      list.ExpectMatch("GPU threads");
    }
  });
}

TYPED_TEST(SgdTypedTest, LeavesEveryBitWhenTheSkipFlagIsSet) {
  const CpuRun cpu = OnCpu(2);
  this->ForEachRule([&](SgdSetting& setting) {
    setting.state.skip = 1;
    typename TestFixture::List list({100, 5000}, 23, 0);
    ASSERT_OK(Sgd(list.segments, setting.options, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    RunGpuBodies(setting, list);
    list.ExpectMatch("skipped");
  });
}

TYPED_TEST(SgdTypedTest, TakesMoreSegmentsThanOneLaunchHolds) {
  this->ForEachRule([](SgdSetting& setting) {
    typename TestFixture::List list(std::vector<int64_t>(SgdPolicy::kMaxSegments + 3, 2), 25, 0);
    RunGpuBodies(setting, list);
    list.Specify(setting.rules, setting.steps, setting.state);
    list.ExpectMatch("GPU threads");
  });
}

class SgdTest : public ::testing::Test {
 protected:
  SgdTest() : setting_(false, false), list_({10, 20}, 24, 0), cpu_(OnCpu(1)) {}

  absl::Status Run() { return Sgd(list_.segments, setting_.options, *cpu_.stream); }
  void ExpectNothingHappened() {
    ASSERT_OK(cpu_.stream->Synchronize());
    list_.ExpectMatch("after an error");
  }

  SgdSetting setting_;
  SgdList<float, NoCopy> list_;
  CpuRun cpu_;
};

TEST_F(SgdTest, RejectsAMomentumBufferThatDoesNotFitTheGroup) {
  list_.segments[0].momentum = nullptr;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              AllOf(HasSubstr("momentum of segment 0 is null with 10 elements"),
                                    HasSubstr("group 0 has momentum 0.9"))));
  list_.segments[0].momentum = list_.arrays[0].moment.data();
  list_.segments[1].momentum = list_.arrays[1].moment.data();
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("momentum of segment 1 is given")));
  ExpectNothingHappened();
}

TEST_F(SgdTest, RejectsHyperParametersOutOfRange) {
  struct Bad {
    double SgdGroup::*member;
    double value;
    const char* message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Bad& bad :
       std::vector<Bad>{{&SgdGroup::momentum, 1.0, "momentum of group 0 is 1"},
                        {&SgdGroup::momentum, nan, "momentum of group 0 is nan"},
                        {&SgdGroup::dampening, 1.1, "dampening of group 0 is 1.1"},
                        {&SgdGroup::weight_decay, -2, "weight_decay of group 0 is -2"}}) {
    const SgdGroup good = setting_.groups[0];
    setting_.groups[0].*bad.member = bad.value;
    EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
    setting_.groups[0] = good;
  }
  setting_.groups[0].nesterov = true;  // with dampening 0.25
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("nesterov of group 0 needs momentum > 0 and dampening 0")));
  ExpectNothingHappened();
}

TEST_F(SgdTest, RejectsEveryBadArray) {
  BadArrays arrays("sgd");
  SgdSetting setting(false, false);
  setting.options.grad_dtype = DType::kBFloat16;
  setting.options.copy_dtype = DType::kFloat16;
  std::vector<SgdSegment> segments(2);
  for (int32_t i = 0; i < 2; ++i) {
    SgdSegment& s = segments[i];
    const std::string of = " of segment " + std::to_string(i);
    s.size = 10 + i;
    s.group = i;
    arrays.Add("param" + of, s.param, s.size, BadArrays::kWritten);
    arrays.Add("grad" + of, s.grad, s.size, 2, 2, BadArrays::kRead);
    arrays.Add("param_copy" + of, s.param_copy, s.size, 2, 2, BadArrays::kWritten);
  }
  arrays.Add("momentum of segment 0", segments[0].momentum, 10, BadArrays::kWritten);
  arrays.Add("state", setting.options.state, 1, BadArrays::kRead);
  arrays.Add("group_steps", setting.options.group_steps, 2, BadArrays::kRead);
  *const_cast<StepState*>(setting.options.state) = setting.state;
  arrays.ExpectRefused(*cpu_.stream, [&] { return Sgd(segments, setting.options, *cpu_.stream); });
}

TEST_F(SgdTest, RejectsUnsupportedTypesAndGroups) {
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
