#include "brigade/kernels/adam/adam.h"

#include <limits>
#include <vector>

#include "brigade/tests/kernels/adam/adam_list.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/kernels/update_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

template <typename Grad_, typename Copy_, bool kDecoupled_>
struct Kind {
  using Grad = Grad_;
  using Copy = Copy_;
  static constexpr bool kDecoupled = kDecoupled_;
};

template <typename Copy>
std::optional<DType> CopyType() {
  if constexpr (std::is_same_v<Copy, NoCopy>) {
    return std::nullopt;
  } else {
    return precision::kDType<Copy>;
  }
}

// How the arrays of a segment lie: all at the same odd distance from a boundary, or each at its
// own.
int64_t SameOffset(int, size_t segment) { return segment % 9; }
int64_t MixedOffset(int array, size_t segment) { return (segment * 3 + array * 5) % 7; }

template <typename Kind>
class AdamTypedTest : public ::testing::Test {
 protected:
  using List = AdamList<typename Kind::Grad, typename Kind::Copy>;

  AdamTypedTest() : setting_(Kind::kDecoupled) {
    setting_.options.grad_dtype = precision::kDType<typename Kind::Grad>;
    setting_.options.copy_dtype = CopyType<typename Kind::Copy>();
  }

  void RunGpuBodies(const List& list) {
    RunUpdateThreads<AdamPolicy, typename Kind::Grad, typename Kind::Copy>(
        MakeAdamParameters(setting_.options), list.segments);
  }

  AdamSetting setting_;
};

using Kinds =
    ::testing::Types<Kind<float, NoCopy, true>, Kind<float, NoCopy, false>, Kind<float, Half, true>,
                     Kind<float, BFloat16, true>, Kind<Half, NoCopy, true>, Kind<Half, Half, true>,
                     Kind<Half, Half, false>, Kind<Half, BFloat16, true>,
                     Kind<BFloat16, NoCopy, true>, Kind<BFloat16, Half, true>,
                     Kind<BFloat16, BFloat16, true>, Kind<BFloat16, BFloat16, false>>;
TYPED_TEST_SUITE(AdamTypedTest, Kinds);

TYPED_TEST(AdamTypedTest, GivesTheSpecificationsBitsOnEveryCpu) {
  auto& setting = this->setting_;
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    typename TestFixture::List list(InterestingSizes(), 11, MixedOffset);
    for (int step = 0; step < 2; ++step) {
      ASSERT_OK(Adam(list.segments, setting.options, stream));
      ASSERT_OK(stream.Synchronize());
      list.Specify(setting.rules, setting.steps, setting.state.grad_multiplier);
    }
    list.ExpectMatch(how);
  });
}

TYPED_TEST(AdamTypedTest, GivesTheSpecificationsBitsInTheGpuThreads) {
  auto& setting = this->setting_;
  for (const auto& offset : {SameOffset, MixedOffset}) {
    typename TestFixture::List list(InterestingSizes(), 12, offset);
    this->RunGpuBodies(list);
    list.Specify(setting.rules, setting.steps, setting.state.grad_multiplier);
    list.ExpectMatch("GPU threads");
  }
}

TYPED_TEST(AdamTypedTest, LeavesEveryBitWhenTheSkipFlagIsSet) {
  this->setting_.state.skip = 1;
  const CpuRun cpu = OnCpu(2);
  typename TestFixture::List list({100, 5000}, 13, SameOffset);
  ASSERT_OK(Adam(list.segments, this->setting_.options, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  list.ExpectMatch("CPU");
  this->RunGpuBodies(list);
  list.ExpectMatch("GPU threads");
}

class AdamTest : public ::testing::Test {
 protected:
  AdamTest() : setting_(true), list_({10, 20}, 14, SameOffset), cpu_(OnCpu(1)) {}

  absl::Status Run() { return Adam(list_.segments, setting_.options, *cpu_.stream); }

  // Everything is as before, and the stream still works.
  void ExpectNothingHappened() {
    ASSERT_OK(cpu_.stream->Synchronize());
    list_.ExpectMatch("after an error");
  }

  AdamSetting setting_;
  AdamList<float, NoCopy> list_;
  CpuRun cpu_;
};

TEST_F(AdamTest, GivesTheSameBitsForAnyCutIntoSegments) {
  constexpr int64_t kSize = 30000;
  AdamList<float, NoCopy> whole({kSize}, 15, SameOffset);
  AdamList<float, NoCopy> pieces({kSize}, 15, SameOffset);
  std::mt19937 random(1);
  std::vector<AdamSegment> cut;
  const AdamSegment& s = pieces.segments[0];
  for (int64_t i = 0; i < kSize;) {
    const int64_t n = std::min<int64_t>(random() % 3000, kSize - i);
    cut.push_back({s.param + i, s.m + i, s.v + i, static_cast<const float*>(s.grad) + i, nullptr, n,
                   s.group});
    i += n;
  }
  ASSERT_OK(Adam(whole.segments, setting_.options, *cpu_.stream));
  ASSERT_OK(Adam(cut, setting_.options, *cpu_.stream));
  ASSERT_OK(cpu_.stream->Synchronize());
  EXPECT_TRUE(Matches(pieces.arrays[0].param, Values(whole.arrays[0].param)));
  EXPECT_TRUE(Matches(pieces.arrays[0].m, Values(whole.arrays[0].m)));
  EXPECT_TRUE(Matches(pieces.arrays[0].v, Values(whole.arrays[0].v)));
}

TYPED_TEST(AdamTypedTest, TakesMoreSegmentsThanOneLaunchHolds) {
  typename TestFixture::List list(std::vector<int64_t>(AdamPolicy::kMaxSegments * 2 + 3, 2), 16,
                                  SameOffset);
  this->RunGpuBodies(list);
  list.Specify(this->setting_.rules, this->setting_.steps, this->setting_.state.grad_multiplier);
  list.ExpectMatch("GPU threads");
}

TEST_F(AdamTest, ReadsTheStepsValuesWhenTheWorkRuns) {
  // Written by an operation in front of it on the stream, after Adam has been called.
  setting_.state.grad_multiplier = -1.0f;
  ASSERT_OK(cpu_.stream->Enqueue({"late", {}}, [&](device::ThreadPool&) {
    setting_.state.grad_multiplier = 0.5f;
    return absl::OkStatus();
  }));
  ASSERT_OK(Run());
  ASSERT_OK(cpu_.stream->Synchronize());
  list_.Specify(setting_.rules, setting_.steps, 0.5f);
  list_.ExpectMatch("late values");
}

TEST_F(AdamTest, AcceptsAnEmptyList) {
  EXPECT_OK(Adam({}, setting_.options, *cpu_.stream));
  EXPECT_OK(cpu_.stream->Synchronize());
}

TEST_F(AdamTest, RejectsEveryBadArray) {
  BadArrays arrays("adam");
  AdamSetting setting(true);
  setting.options.grad_dtype = DType::kFloat16;
  setting.options.copy_dtype = DType::kBFloat16;
  std::vector<AdamSegment> segments(2);
  for (int32_t i = 0; i < 2; ++i) {
    AdamSegment& s = segments[i];
    const std::string of = " of segment " + std::to_string(i);
    s.size = 10 + i;
    s.group = i;
    arrays.Add("param" + of, s.param, s.size, BadArrays::kWritten);
    arrays.Add("m" + of, s.m, s.size, BadArrays::kWritten);
    arrays.Add("v" + of, s.v, s.size, BadArrays::kWritten);
    arrays.Add("grad" + of, s.grad, s.size, 2, 2, BadArrays::kRead);
    arrays.Add("param_copy" + of, s.param_copy, s.size, 2, 2, BadArrays::kWritten);
  }
  arrays.Add("state", setting.options.state, 1, BadArrays::kRead);
  arrays.Add("group_steps", setting.options.group_steps, 2, BadArrays::kRead);
  *const_cast<StepState*>(setting.options.state) = setting.state;
  arrays.ExpectRefused(*cpu_.stream, [&] { return Adam(segments, setting.options, *cpu_.stream); });
}

TEST_F(AdamTest, RejectsANegativeSizeAndAGroupOutOfRange) {
  list_.segments[0].size = -5;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("segment 0 has negative size -5")));
  list_.segments[0].size = 10;
  list_.segments[1].group = 2;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("segment 1 is in group 2, but there are 2")));
  ExpectNothingHappened();
}

TEST_F(AdamTest, RejectsHyperParametersOutOfRange) {
  struct Bad {
    double AdamGroup::*member;
    double value;
    const char* message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Bad& bad :
       std::vector<Bad>{{&AdamGroup::eps, 0.0, "eps of group 1 is 0"},
                        {&AdamGroup::eps, 1e-60, "eps of group 1 is 1e-60, must be positive"},
                        {&AdamGroup::eps, nan, "eps of group 1 is nan"},
                        {&AdamGroup::beta1, -0.1, "beta1 of group 1 is -0.1"},
                        {&AdamGroup::beta1, 1.0, "beta1 of group 1 is 1"},
                        {&AdamGroup::beta2, nan, "beta2 of group 1 is nan"},
                        {&AdamGroup::beta2, 1.5, "beta2 of group 1 is 1.5"},
                        {&AdamGroup::weight_decay, -1, "weight_decay of group 1"},
                        {&AdamGroup::weight_decay, nan, "is nan"}}) {
    const AdamGroup good = setting_.groups[1];
    setting_.groups[1].*bad.member = bad.value;
    EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
    setting_.groups[1] = good;
  }
  ExpectNothingHappened();
}

TEST_F(AdamTest, RejectsTypesAndGroupCountsThatAreNotSupported) {
  setting_.options.grad_dtype = DType::kInt32;
  EXPECT_THAT(Run(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dtype of grad is int32")));
  setting_.options.grad_dtype = DType::kFloat32;
  setting_.options.copy_dtype = DType::kFloat32;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("dtype of param_copy is fp32")));
  setting_.options.copy_dtype = std::nullopt;
  list_.segments[0].param_copy = list_.segments[0].param;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("param_copy of segment 0 is given, but its type is not")));
  list_.segments[0].param_copy = nullptr;
  setting_.options.groups = {};
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 groups")));
  const std::vector<AdamGroup> many(kMaxAdamGroups + 1);
  setting_.options.groups = many;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("129 groups")));
  ExpectNothingHappened();
}

}  // namespace
}  // namespace brigade::kernels
