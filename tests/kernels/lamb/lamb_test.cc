#include "brigade/kernels/lamb/lamb.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "brigade/kernels/lamb/lamb_cpu.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/lamb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::AnyOf;
using ::testing::HasSubstr;

template <typename Grad, typename Copy>
class LambList {
 public:
  static constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  using CopyArray = std::conditional_t<kHasCopy, Copy, float>;
  struct Arrays {
    GuardedArray<float> param, m, v;
    GuardedArray<Grad> grad;
    GuardedArray<CopyArray> copy;
    spec::LambTensor wanted;
    std::vector<float> wanted_copy;
  };

  LambList(const std::vector<int64_t>& sizes, uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t n = sizes[i];
      const auto offset = static_cast<int64_t>(i % 9);
      arrays.push_back({GuardedArray<float>(n, offset),
                        GuardedArray<float>(n, offset / 2),
                        GuardedArray<float>(n, offset / 3),
                        GuardedArray<Grad>(n, offset),
                        GuardedArray<CopyArray>(kHasCopy ? n : 0, offset),
                        {},
                        {}});
      Arrays& a = arrays.back();
      FillTypical(a.param, random);
      FillTypical(a.m, random);
      FillTypical(a.v, random);
      for (int64_t j = 0; j < n; ++j) a.v[j] = std::fabs(a.v[j]);
      FillTypical(a.grad, random, 10.0f);
      // Tensors of zeros, and without an update.
      if (i % 7 == 3) {
        for (int64_t j = 0; j < n; ++j) a.param[j] = 0.0f;
      }
      if (i % 7 == 5) {
        for (int64_t j = 0; j < n; ++j) a.m[j] = 0.0f, a.grad[j] = Grad(0.0f);
      }
      a.wanted = {Values(a.param), Values(a.m), Values(a.v)};
      a.wanted_copy = Values(a.copy);
      segments.push_back({a.param.data(), a.m.data(), a.v.data(), a.grad.data(),
                          kHasCopy ? static_cast<void*>(a.copy.data()) : nullptr, n,
                          static_cast<int32_t>(i % 2)});
    }
    workspace.resize(static_cast<size_t>(LambWorkspaceSize(segments)));
  }

  void Specify(const std::vector<spec::LambRule>& rules, const std::vector<GroupStep>& steps,
               const StepState& state) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      Arrays& a = arrays[i];
      const GroupStep& step = steps[i % 2];
      spec::LambStep(a.wanted, Values(a.grad), state.grad_multiplier, rules[i % 2],
                     {step.lr, step.step_size, step.inv_sqrt_correction});
      for (int64_t j = 0; j < a.copy.size(); ++j) {
        a.wanted_copy[j] = spec::Round(kFormat<CopyArray>, a.wanted.param[j]);
      }
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_TRUE(Matches(arrays[i].param, arrays[i].wanted.param)) << how << ", param " << i;
      EXPECT_TRUE(Matches(arrays[i].m, arrays[i].wanted.m)) << how << ", m " << i;
      EXPECT_TRUE(Matches(arrays[i].v, arrays[i].wanted.v)) << how << ", v " << i;
      EXPECT_TRUE(Matches(arrays[i].copy, arrays[i].wanted_copy)) << how << ", copy " << i;
    }
  }

  std::deque<Arrays> arrays;
  std::vector<LambSegment> segments;
  std::vector<double> workspace;
};

struct LambSetting {
  LambSetting() {
    for (const spec::LambRule& rule : rules) {
      groups.push_back(
          {rule.beta1, rule.beta2, rule.eps, rule.weight_decay, rule.min_trust, rule.max_trust});
    }
    options.groups = groups;
    options.state = &state;
    options.group_steps = steps.data();
    state.grad_multiplier = 0.37f;
    state.step = 3;
  }
  LambSetting(const LambSetting&) = delete;

  // Bounds that some tensors are beyond, and none.
  std::vector<spec::LambRule> rules = {
      {.weight_decay = 0.01, .min_trust = 0.5, .max_trust = 2.0},
      {.beta1 = 0.5, .beta2 = 0.9, .eps = 1e-3, .min_trust = 0.0, .max_trust = 3e38}};
  std::vector<LambGroup> groups;
  std::vector<GroupStep> steps = {{0.05f, 0.18f, 18.3f}, {0.3f, 0.34f, 1.9f}};
  StepState state = {};
  LambOptions options;
};

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes = InterestingSizes();
  for (const int64_t size : {255, 256, 257, 8191, 8192, 8193, 300'000}) sizes.push_back(size);
  return sizes;
}

template <typename Types>
class LambTypedTest : public ::testing::Test {
 protected:
  using Grad = typename Types::first_type;
  using Copy = typename Types::second_type;
  using List = LambList<Grad, Copy>;
  LambTypedTest() {
    setting.options.grad_dtype = precision::kDType<Grad>;
    if constexpr (List::kHasCopy) setting.options.copy_dtype = precision::kDType<Copy>;
  }

  LambSetting setting;
};
using TypePairs =
    ::testing::Types<std::pair<float, NoCopy>, std::pair<float, BFloat16>, std::pair<float, Half>,
                     std::pair<Half, NoCopy>, std::pair<Half, Half>, std::pair<BFloat16, NoCopy>,
                     std::pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(LambTypedTest, TypePairs);

TYPED_TEST(LambTypedTest, GivesTheSpecificationsBitsOnEveryCpu) {
  LambSetting& setting = this->setting;
  typename TestFixture::List wanted(Sizes(), 61);
  wanted.Specify(setting.rules, setting.steps, setting.state);
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    typename TestFixture::List list(Sizes(), 61);
    ASSERT_OK(Lamb(list.segments, setting.options, absl::MakeSpan(list.workspace), stream));
    ASSERT_OK(stream.Synchronize());
    for (size_t i = 0; i < list.arrays.size(); ++i) {
      list.arrays[i].wanted = wanted.arrays[i].wanted;
      list.arrays[i].wanted_copy = wanted.arrays[i].wanted_copy;
    }
    list.ExpectMatch(how);
  });
}

TYPED_TEST(LambTypedTest, LeavesEveryBitWhenTheSkipFlagIsSet) {
  this->setting.state.skip = 1;
  const CpuRun cpu = OnCpu(2);
  typename TestFixture::List list({100, 9000}, 62);
  ASSERT_OK(
      Lamb(list.segments, this->setting.options, absl::MakeSpan(list.workspace), *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  list.ExpectMatch("skipped");
}

// The passes apart, with each tensor cut between ranks as arrays in which it lies somewhere.
template <typename List>
class LambOnRanks {
 public:
  // Tensors begin at tiles of an array that all ranks share, in parts of equal size.
  LambOnRanks(List& list, int ranks) : list_(list), ranks_(ranks) {
    int64_t tiles = 0;
    for (const LambSegment& s : list.segments) tiles += TilesOf(s.size);
    part_ = std::max<int64_t>((tiles + ranks - 1) / ranks, 1);
    sums_.resize(static_cast<size_t>(2 * ranks * part_));
    trusts_.resize(list.segments.size(), -1.0f);
    pieces_.resize(static_cast<size_t>(ranks));
    int64_t first = 0;
    for (size_t i = 0; i < list.segments.size(); ++i) {
      const LambSegment& s = list.segments[i];
      tensors_.push_back({first, TilesOf(s.size), 0, part_, part_, s.group});
      for (int64_t t = 0; t < TilesOf(s.size);) {
        const int64_t rank = (first + t) / part_;
        const int64_t end = std::min(TilesOf(s.size), (rank + 1) * part_ - first);
        pieces_[static_cast<size_t>(rank)].push_back(
            Piece(s, t * kLambTile, std::min(s.size, end * kLambTile), &trusts_[i]));
        t = end;
      }
      first += TilesOf(s.size);
    }
  }

  void Run(const LambOptions& options, device::Stream& stream) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto own = static_cast<size_t>(2 * part_);
      ASSERT_OK(LambMoments(pieces_[static_cast<size_t>(rank)], options,
                            absl::MakeSpan(sums_).subspan(static_cast<size_t>(rank) * own, own),
                            stream));
    }
    ASSERT_OK(LambTrusts(tensors_, options, sums_, absl::MakeSpan(trusts_), stream));
    for (const auto& pieces : pieces_) ASSERT_OK(LambParams(pieces, options, trusts_, stream));
    ASSERT_OK(stream.Synchronize());
  }

  std::vector<LambTensor>& tensors() { return tensors_; }
  std::vector<double>& sums() { return sums_; }
  std::vector<float>& trusts() { return trusts_; }

 private:
  static int64_t TilesOf(int64_t size) { return (size + kLambTile - 1) / kLambTile; }

  LambSegment Piece(const LambSegment& s, int64_t begin, int64_t end, const float* trust) const {
    using Grad = std::remove_reference_t<decltype(list_.arrays[0].grad[0])>;
    using Copy = typename List::CopyArray;
    LambSegment piece = s;
    piece.param += begin;
    piece.m += begin;
    piece.v += begin;
    piece.grad = static_cast<const Grad*>(s.grad) + begin;
    if (s.param_copy != nullptr) piece.param_copy = static_cast<Copy*>(s.param_copy) + begin;
    piece.size = end - begin;
    piece.trust = trust;
    return piece;
  }

  List& list_;
  const int ranks_;
  int64_t part_ = 1;
  std::vector<std::vector<LambSegment>> pieces_;
  std::vector<LambTensor> tensors_;
  std::vector<double> sums_;
  std::vector<float> trusts_;
};

TYPED_TEST(LambTypedTest, GivesTheSameBitsWhereRanksHavePiecesOfTensors) {
  LambSetting& setting = this->setting;
  const std::vector<int64_t> sizes = {100, 8192, 300'000, 0, 20'000, 8193, 5};
  typename TestFixture::List wanted(sizes, 65);
  wanted.Specify(setting.rules, setting.steps, setting.state);
  for (const int ranks : {1, 2, 3, 7}) {
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      typename TestFixture::List list(sizes, 65);
      LambOnRanks on_ranks(list, ranks);
      on_ranks.Run(setting.options, stream);
      for (size_t i = 0; i < list.arrays.size(); ++i) {
        list.arrays[i].wanted = wanted.arrays[i].wanted;
        list.arrays[i].wanted_copy = wanted.arrays[i].wanted_copy;
      }
      list.ExpectMatch(how + ", ranks: " + std::to_string(ranks));
    });
  }
}

TYPED_TEST(LambTypedTest, ThePassesLeaveEveryBitWhenTheSkipFlagIsSet) {
  this->setting.state.skip = 1;
  const CpuRun cpu = OnCpu(2);
  typename TestFixture::List list({100, 9000}, 66);
  LambOnRanks on_ranks(list, 2);
  on_ranks.Run(this->setting.options, *cpu.stream);
  list.ExpectMatch("skipped");
  EXPECT_EQ(on_ranks.trusts(), std::vector<float>(2, -1.0f));
}

class LambTest : public ::testing::Test {
 protected:
  LambTest() : list_({100, 20'000}, 63), cpu_(OnCpu(1)) {}

  absl::Status Run() {
    return Lamb(list_.segments, setting_.options, absl::MakeSpan(list_.workspace), *cpu_.stream);
  }

  LambSetting setting_;
  LambList<float, NoCopy> list_;
  CpuRun cpu_;
};

TEST_F(LambTest, AStepOfTheHostAndAnyCutIntoTilesGiveTheSameBits) {
  const float lr[] = {0.05f, 0.3f};
  const OneStep step = {.step = 7, .lr = lr, .grad_multiplier = 0.37f};
  setting_.options.state = nullptr;
  setting_.options.group_steps = nullptr;
  setting_.options.one_step = step;
  ASSERT_OK(Run());
  ASSERT_OK(cpu_.stream->Synchronize());
  LambList<float, NoCopy> cut({100, 20'000}, 63);
  const LambParameters parameters = MakeLambParameters(setting_.groups.data(), 2, step);
  for (const LambSegment& s : cut.segments) {
    LambSums tiles[3];
    const int64_t middle = std::min(s.size, 2 * kLambTile);
    ASSERT_EQ(LambMomentsRange<float>(s, parameters, middle, s.size, tiles), StepError::kNone);
    ASSERT_EQ(LambMomentsRange<float>(s, parameters, 0, middle, tiles), StepError::kNone);
    const float trust = LambTrustOf(s, parameters, tiles);
    ASSERT_EQ(LambParamRange<NoCopy>(s, parameters, trust, middle, s.size), StepError::kNone);
    ASSERT_EQ(LambParamRange<NoCopy>(s, parameters, trust, 0, middle), StepError::kNone);
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(Matches(cut.arrays[i].param, Values(list_.arrays[i].param)));
    EXPECT_TRUE(Matches(cut.arrays[i].m, Values(list_.arrays[i].m)));
  }
}

TEST_F(LambTest, RefusesASteplessCall) {
  setting_.state = {};
  ASSERT_OK(Run());
  EXPECT_THAT(cpu_.stream->Synchronize(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                   HasSubstr("lamb: state was not filled")));
  list_.ExpectMatch("without a step");
  EXPECT_EQ(LambParamRange<NoCopy>(list_.segments[0], LambParameters(), 1.0f, 0, 100),
            StepError::kNoStep);
  list_.ExpectMatch("without a step");
}

TEST_F(LambTest, ThePassesNameWhatIsWrong) {
  LambOnRanks on_ranks(list_, 2);
  const auto invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  const auto trusts = [&] {
    return LambTrusts(on_ranks.tensors(), setting_.options, on_ranks.sums(),
                      absl::MakeSpan(on_ranks.trusts()), *cpu_.stream);
  };
  ASSERT_OK(trusts());
  on_ranks.tensors()[1].stride = 0;
  EXPECT_THAT(trusts(), invalid("lamb_trusts: tensor 1 has 3 tiles from 1 on, parts of 2 from 0 "
                                "on, at distances of 0"));
  on_ranks.tensors()[1].stride = 2;
  on_ranks.tensors()[1].group = 2;
  EXPECT_THAT(trusts(), invalid("group"));
  on_ranks.tensors()[1].group = 1;
  on_ranks.tensors()[1].first = 2;
  EXPECT_THAT(trusts(), invalid("sums has 8 doubles, the list needs 10"));
  // Sums whose places no number of 64 bits has.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  on_ranks.tensors()[1].first = 1;
  ASSERT_OK(trusts());
  const LambTensor fits = on_ranks.tensors()[1];
  for (int64_t LambTensor::*const member :
       {&LambTensor::first, &LambTensor::count, &LambTensor::offset, &LambTensor::stride}) {
    for (const int64_t value : {int64_t{-1}, kMost - 1, kMost}) {
      on_ranks.tensors()[1] = fits;
      on_ranks.tensors()[1].*member = value;
      EXPECT_THAT(trusts(), invalid("lamb_trusts: tensor 1 has ")) << value;
    }
    for (const int64_t value : {kMost / 2, kMost / 4}) {
      on_ranks.tensors()[1] = fits;
      on_ranks.tensors()[1].*member = value;
      EXPECT_THAT(trusts(), StatusIs(absl::StatusCode::kInvalidArgument,
                                     AnyOf(HasSubstr("lamb_trusts: tensor 1 has "),
                                           HasSubstr("sums has 8 doubles, the list needs "))))
          << value;
    }
  }
  on_ranks.tensors()[1] = fits;
  for (const int64_t part : {int64_t{-1}, int64_t{0}}) {
    on_ranks.tensors()[1].part = part;
    EXPECT_THAT(trusts(), invalid("lamb_trusts: tensor 1 has ")) << part;
  }
  // One rank may have room for more tiles than there are.
  on_ranks.tensors()[1].part = kMost;
  EXPECT_OK(trusts());
  EXPECT_OK(cpu_.stream->Synchronize());
  on_ranks.tensors()[1] = fits;
  const float own = 1.0f;
  on_ranks.trusts().pop_back();
  EXPECT_THAT(trusts(), invalid("lamb_trusts: trusts has 1 elements, the list needs 2"));
  list_.segments[0].trust = &own;
  list_.segments[1].trust = on_ranks.trusts().data();
  EXPECT_THAT(LambParams(list_.segments, setting_.options, on_ranks.trusts(), *cpu_.stream),
              invalid("lamb_params: trust of segment 0 is none of the 1 trusts"));
  EXPECT_THAT(LambMoments(list_.segments, setting_.options,
                          absl::MakeSpan(list_.workspace).subspan(1), *cpu_.stream),
              invalid("sums has 7 doubles, the list needs 8"));
  ASSERT_OK(cpu_.stream->Synchronize());
  list_.ExpectMatch("after an error");
}

TEST_F(LambTest, RejectsHyperParametersOutOfRange) {
  struct Bad {
    double LambGroup::*member;
    double value;
    const char* message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Bad& bad : std::vector<Bad>{{&LambGroup::beta1, 1.0, "beta1 of group 0 is 1"},
                                         {&LambGroup::beta2, nan, "beta2 of group 0 is nan"},
                                         {&LambGroup::eps, 0.0, "eps of group 0 is 0"},
                                         {&LambGroup::weight_decay, -2, "weight_decay of group 0"},
                                         {&LambGroup::max_trust, -1, "max_trust of group 0 is -1"},
                                         {&LambGroup::min_trust, 2.5, "min_trust of group 0 is"}}) {
    const LambGroup good = setting_.groups[0];
    setting_.groups[0].*bad.member = bad.value;
    EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)));
    setting_.groups[0] = good;
  }
  list_.workspace.pop_back();
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("workspace has 7 doubles, the list needs 8")));
  ASSERT_OK(cpu_.stream->Synchronize());
  list_.ExpectMatch("after an error");
}

TEST_F(LambTest, RejectsEveryBadArray) {
  BadArrays arrays("lamb");
  setting_.options.grad_dtype = DType::kBFloat16;
  setting_.options.copy_dtype = DType::kFloat16;
  std::vector<LambSegment> segments(2);
  for (int32_t i = 0; i < 2; ++i) {
    LambSegment& s = segments[i];
    const std::string of = " of segment " + std::to_string(i);
    s.size = 10 + i;
    s.group = i;
    arrays.Add("param" + of, s.param, s.size, BadArrays::kWritten);
    arrays.Add("m" + of, s.m, s.size, BadArrays::kWritten);
    arrays.Add("v" + of, s.v, s.size, BadArrays::kWritten);
    arrays.Add("grad" + of, s.grad, s.size, 2, 2, BadArrays::kRead);
    arrays.Add("param_copy" + of, s.param_copy, s.size, 2, 2, BadArrays::kWritten);
  }
  arrays.Add("state", setting_.options.state, 1, BadArrays::kRead);
  arrays.Add("group_steps", setting_.options.group_steps, 2, BadArrays::kRead);
  *const_cast<StepState*>(setting_.options.state) = setting_.state;
  arrays.ExpectRefused(*cpu_.stream, [&] {
    return Lamb(segments, setting_.options, absl::MakeSpan(list_.workspace), *cpu_.stream);
  });
}

}  // namespace
}  // namespace brigade::kernels
