#include "brigade/kernels/lion/lion.h"

#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "brigade/kernels/internal/update_tile.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
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
class LionList {
 public:
  static constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  using CopyArray = std::conditional_t<kHasCopy, Copy, float>;
  struct Arrays {
    GuardedArray<float> param, m;
    GuardedArray<Grad> grad;
    GuardedArray<CopyArray> copy;
    std::vector<float> wanted_param, wanted_m, wanted_copy;
  };

  LionList(const std::vector<int64_t>& sizes, uint32_t seed, int spread) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t n = sizes[i];
      const int64_t offset = i % 9;
      arrays.push_back({GuardedArray<float>(n, offset),
                        GuardedArray<float>(n, offset + spread),
                        GuardedArray<Grad>(n, offset + 2 * spread),
                        GuardedArray<CopyArray>(kHasCopy ? n : 0, offset + 5 * spread),
                        {},
                        {},
                        {}});
      Arrays& a = arrays.back();
      FillTypical(a.param, random);
      FillTypical(a.m, random);
      FillTypical(a.grad, random, 10.0f);
      a.wanted_param = Values(a.param);
      a.wanted_m = Values(a.m);
      a.wanted_copy = Values(a.copy);
      const int32_t group = i % 2;
      segments.push_back({a.param.data(), a.m.data(), a.grad.data(),
                          kHasCopy ? static_cast<void*>(a.copy.data()) : nullptr, n, group});
    }
  }

  void Specify(const std::vector<spec::LionRule>& rules, const std::vector<GroupStep>& steps,
               const StepState& state) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      Arrays& a = arrays[i];
      const int32_t group = segments[i].group;
      for (int64_t j = 0; j < a.param.size(); ++j) {
        const spec::LionElement x =
            spec::LionUpdate({a.wanted_param[j], a.wanted_m[j]}, static_cast<float>(a.grad[j]),
                             state.grad_multiplier, rules[group], steps[group].lr);
        a.wanted_param[j] = x.param;
        a.wanted_m[j] = x.m;
        if (kHasCopy) a.wanted_copy[j] = spec::Round(kFormat<CopyArray>, x.param);
      }
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_TRUE(Matches(arrays[i].param, arrays[i].wanted_param)) << how << ", param " << i;
      EXPECT_TRUE(Matches(arrays[i].m, arrays[i].wanted_m)) << how << ", m " << i;
      EXPECT_TRUE(Matches(arrays[i].copy, arrays[i].wanted_copy)) << how << ", copy " << i;
    }
  }

  std::deque<Arrays> arrays;
  std::vector<LionSegment> segments;
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
void RunGpuBodies(const LionSetting& setting, LionList<Grad, Copy>& list) {
  auto arguments = std::make_unique<UpdateArguments<LionPolicy>>();
  arguments->parameters = MakeLionParameters(setting.options);
  const auto tiles_of = [](const LionSegment& s) {
    return UpdateLayout<LionPolicy, Grad, Copy>(s).Tiles(s.size);
  };
  ForEachBatch(list.segments.data(), list.segments.size(), kMaxGridBlocks, tiles_of,
               arguments->batch, true, [&](int64_t) {
                 ForEachGpuThread(arguments->batch.tiles(), kTileThreads,
                                  [&](int64_t tile, int thread) {
                                    UpdateThread<LionPolicy, Grad, Copy>(*arguments, tile, thread);
                                  });
                 return true;
               });
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

using TypePairs =
    ::testing::Types<std::pair<float, NoCopy>, std::pair<float, BFloat16>, std::pair<float, Half>,
                     std::pair<Half, NoCopy>, std::pair<Half, Half>, std::pair<Half, BFloat16>,
                     std::pair<BFloat16, NoCopy>, std::pair<BFloat16, Half>,
                     std::pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(LionTypedTest, TypePairs);

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
