#include "brigade/kernels/adam8/adam8.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "brigade/kernels/adam8/adam8_cpu.h"
#include "brigade/kernels/simd.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/kernels/update_testing.h"
#include "brigade/tests/spec/adam8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

bool SameCodes(const GuardedArray<uint8_t>& is, const std::vector<uint8_t>& wanted) {
  return is.GuardsAreIntact() && std::equal(wanted.begin(), wanted.end(), is.data());
}

// Segments with any codes and scales, in groups 0 and 1 by turns, and what the specification says
// becomes of them.
template <typename Grad, typename Copy>
class Adam8List {
 public:
  static constexpr bool kHasCopy = !std::is_same_v<Copy, NoCopy>;
  using CopyArray = std::conditional_t<kHasCopy, Copy, float>;
  struct Arrays {
    GuardedArray<float> param;
    GuardedArray<uint8_t> m, v;
    GuardedArray<float> m_scale, v_scale;
    GuardedArray<Grad> grad;
    GuardedArray<CopyArray> copy;
    spec::Adam8Tensor wanted;
    std::vector<float> wanted_copy;
  };

  Adam8List(const std::vector<int64_t>& sizes, uint32_t seed, int spread) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t n = sizes[i], blocks = MomentBlocks(n);
      const auto offset = static_cast<int64_t>(i % 9);
      arrays.push_back({GuardedArray<float>(n, offset),
                        GuardedArray<uint8_t>(n, offset + spread),
                        GuardedArray<uint8_t>(n, offset),
                        GuardedArray<float>(blocks, offset),
                        GuardedArray<float>(blocks, offset + spread),
                        GuardedArray<Grad>(n, offset + 2 * spread),
                        GuardedArray<CopyArray>(kHasCopy ? n : 0, offset + 5 * spread),
                        {},
                        {}});
      Arrays& a = arrays.back();
      FillTypical(a.param, random);
      FillTypical(a.grad, random, 10.0f);
      for (int64_t j = 0; j < n; ++j) {
        a.m[j] = static_cast<uint8_t>(random());
        a.v[j] = static_cast<uint8_t>(random());
      }
      for (int64_t b = 0; b < blocks; ++b) {
        a.m_scale[b] = std::fabs(TypicalValue(random));
        a.v_scale[b] = std::fabs(TypicalValue(random));
      }
      // A block of moments that are small as well.
      if (blocks > 2) {
        for (int64_t j = 256; j < 512; ++j) a.grad[j] = Grad(0.0f);
        a.m_scale[1] = 0x1p-140f;
        a.v_scale[1] = 0.0f;
      }
      a.wanted = {Values(a.param),
                  {a.m.data(), a.m.data() + n},
                  {a.v.data(), a.v.data() + n},
                  Values(a.m_scale),
                  Values(a.v_scale)};
      a.wanted_copy = Values(a.copy);
      segments.push_back({a.param.data(), a.m.data(), a.v.data(), a.m_scale.data(),
                          a.v_scale.data(), a.grad.data(),
                          kHasCopy ? static_cast<void*>(a.copy.data()) : nullptr, n,
                          static_cast<int32_t>(i % 2)});
    }
  }

  void Specify(const std::vector<spec::AdamRule>& rules, const std::vector<GroupStep>& steps,
               const StepState& state) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      Arrays& a = arrays[i];
      const auto group = static_cast<size_t>(segments[i].group);
      const GroupStep& step = steps[group];
      spec::Adam8Step(a.wanted, Values(a.grad), state.grad_multiplier, rules[group],
                      {step.lr, step.step_size, step.inv_sqrt_correction});
      for (size_t j = 0; kHasCopy && j < a.wanted_copy.size(); ++j) {
        a.wanted_copy[j] = spec::Round(kFormat<CopyArray>, a.wanted.param[j]);
      }
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      const Arrays& a = arrays[i];
      EXPECT_TRUE(Matches(a.param, a.wanted.param)) << how << ", param " << i;
      EXPECT_TRUE(Matches(a.m_scale, a.wanted.m_scale)) << how << ", scales of m " << i;
      EXPECT_TRUE(Matches(a.v_scale, a.wanted.v_scale)) << how << ", scales of v " << i;
      EXPECT_TRUE(SameCodes(a.m, a.wanted.m)) << how << ", m " << i;
      EXPECT_TRUE(SameCodes(a.v, a.wanted.v)) << how << ", v " << i;
      EXPECT_TRUE(Matches(a.copy, a.wanted_copy)) << how << ", copy " << i;
    }
  }

  std::deque<Arrays> arrays;  // do not move
  std::vector<Adam8Segment> segments;
};

std::vector<int64_t> BlockSizes() {
  std::vector<int64_t> sizes = InterestingSizes();
  sizes.insert(sizes.begin() + 2, {255, 256, 257, 511, 512, 513, 1280});
  return sizes;
}

struct Adam8Setting {
  Adam8Setting() {
    for (const spec::AdamRule& rule : rules) {
      groups.push_back({rule.beta1, rule.beta2, rule.eps, rule.weight_decay});
    }
    options.groups = groups;
    options.state = &state;
    options.group_steps = steps.data();
    state.grad_multiplier = 0.37f;
    state.step = 1;
  }
  Adam8Setting(const Adam8Setting&) = delete;

  void SetDecoupled(bool decoupled) {
    options.weight_decay_mode = decoupled ? WeightDecayMode::kDecoupled : WeightDecayMode::kCoupled;
    for (spec::AdamRule& rule : rules) rule.decoupled = decoupled;
  }

  std::vector<spec::AdamRule> rules = {{.weight_decay = 0.01},
                                       {.beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.1}};
  std::vector<AdamGroup> groups;
  std::vector<GroupStep> steps = {{0.05f, 0.06f, 3.0f}, {0.3f, 0.4f, 1.5f}};
  StepState state = {};
  AdamOptions options;
};

template <typename Types>
class Adam8TypedTest : public ::testing::Test {
 protected:
  using List = Adam8List<typename Types::first_type, typename Types::second_type>;

  Adam8TypedTest() {
    using Copy = typename Types::second_type;
    setting.options.grad_dtype = precision::kDType<typename Types::first_type>;
    if constexpr (!std::is_same_v<Copy, NoCopy>) {
      setting.options.copy_dtype = precision::kDType<Copy>;
    }
  }

  Adam8Setting setting;
};

TYPED_TEST_SUITE(Adam8TypedTest, UpdateTypePairs);

// OnEveryCpu, also as on one that does not look up bytes.
template <typename Run>
void OnEveryCpuAndWithoutBytes(const Run& run) {
  OnEveryCpu(run);
  SetSimdLooksUpBytes(false);
  OnEveryCpu(
      [&](device::Stream& stream, const std::string& how) { run(stream, how + " without bytes"); });
  SetSimdLooksUpBytes(true);
}

TYPED_TEST(Adam8TypedTest, GivesTheSpecificationsBitsOnEveryCpu) {
  Adam8Setting& setting = this->setting;
  OnEveryCpuAndWithoutBytes([&](device::Stream& stream, const std::string& how) {
    for (const bool decoupled : {true, false}) {
      setting.SetDecoupled(decoupled);
      typename TestFixture::List list(BlockSizes(), 61, 1);
      for (setting.state.step = 1; setting.state.step <= 2; ++setting.state.step) {
        ASSERT_OK(Adam8(list.segments, setting.options, stream));
        ASSERT_OK(stream.Synchronize());
        list.Specify(setting.rules, setting.steps, setting.state);
      }
      list.ExpectMatch(how);
    }
  });
}

TYPED_TEST(Adam8TypedTest, LeavesEveryBitWhenTheSkipFlagIsSet) {
  const CpuRun cpu = OnCpu(2);
  this->setting.state.skip = 1;
  typename TestFixture::List list({100, 5000}, 63, 0);
  ASSERT_OK(Adam8(list.segments, this->setting.options, *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  list.ExpectMatch("skipped");
}

class Adam8Test : public ::testing::Test {
 protected:
  Adam8Test() : list_({10, 300}, 64, 0), cpu_(OnCpu(1)) {}

  absl::Status Run() { return Adam8(list_.segments, setting_.options, *cpu_.stream); }
  void ExpectNothingHappened() {
    ASSERT_OK(cpu_.stream->Synchronize());
    list_.ExpectMatch("after an error");
  }

  Adam8Setting setting_;
  Adam8List<float, NoCopy> list_;
  CpuRun cpu_;
};

// Of each kind, alone in a block: that block is NaN, and no other.
TEST_F(Adam8Test, MarksEveryBlockThatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  OnEveryCpuAndWithoutBytes([&](device::Stream& stream, const std::string& how) {
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      for (const int64_t at : {0, 15, 255, 256, 700, 1279}) {
        Adam8List<float, NoCopy> list({1280}, 65, 0);
        list.arrays[0].grad[at] = bad;
        ASSERT_OK(Adam8(list.segments, setting_.options, stream));
        ASSERT_OK(stream.Synchronize());
        list.Specify(setting_.rules, setting_.steps, setting_.state);
        list.ExpectMatch(how);
        for (int64_t b = 0; b < 5; ++b) {
          EXPECT_EQ(std::isnan(list.arrays[0].m_scale[b]), b == at / 256);
          EXPECT_EQ(std::isnan(list.arrays[0].v_scale[b]), b == at / 256);
        }
      }
    }
  });
}

// Moments of every magnitude of which floats have any.
TEST_F(Adam8Test, HasScalesOfEveryMagnitude) {
  OnEveryCpuAndWithoutBytes([&](device::Stream& stream, const std::string& how) {
    Adam8List<float, NoCopy> list({276 * 256}, 66, 0);
    auto& a = list.arrays[0];
    for (int64_t b = 0; b < 276; ++b) {
      for (int64_t i = 256 * b; i < 256 * (b + 1); ++i) {
        a.grad[i] = 0.0f;
        a.wanted.m[static_cast<size_t>(i)] = a.m[i];
      }
      a.m_scale[b] = a.v_scale[b] = std::ldexp(1.5f, static_cast<int>(b) - 149);
    }
    a.wanted.m_scale = Values(a.m_scale);
    a.wanted.v_scale = Values(a.v_scale);
    ASSERT_OK(Adam8(list.segments, setting_.options, stream));
    ASSERT_OK(stream.Synchronize());
    list.Specify(setting_.rules, setting_.steps, setting_.state);
    list.ExpectMatch(how);
  });
}

// Both sides of every edge between two codes, and of every end of a decade.
TEST_F(Adam8Test, HasTheSpecificationsCodesOnBothSidesOfEveryEdge) {
  for (const bool has_sign : {true, false}) {
    std::vector<float> shares = {0.0f, 1.0f};
    for (int code = 0; code < 255; ++code) {
      const float middle = (std::fabs(spec::Adam8Number(has_sign, code)) +
                            std::fabs(spec::Adam8Number(has_sign, code + 1))) /
                           2;
      float x = middle;
      for (int i = 0; i < 6; ++i) x = std::nextafter(x, 0.0f);
      for (int i = 0; i < 13; ++i, x = std::nextafter(x, 2.0f)) shares.push_back(x);
    }
    // With beta1 = beta2 = 0 moments are the gradient and its square; a block's first is 1.
    setting_.rules[0] = {.beta1 = 0.0, .beta2 = 0.0};
    setting_.groups[0] = {0.0, 0.0};
    setting_.state.grad_multiplier = 1.0f;
    const auto size = static_cast<int64_t>(shares.size());
    OnEveryCpuAndWithoutBytes([&](device::Stream& stream, const std::string& how) {
      Adam8List<float, NoCopy> list({size}, 68, 0);
      for (int64_t i = 0; i < size; ++i) {
        const float share = i % 256 == 0 ? 1.0f : shares[static_cast<size_t>(i)];
        list.arrays[0].grad[i] = has_sign ? (i % 2 != 0 ? -share : share) : std::sqrt(share);
      }
      ASSERT_OK(Adam8(list.segments, setting_.options, stream));
      ASSERT_OK(stream.Synchronize());
      list.Specify(setting_.rules, setting_.steps, setting_.state);
      list.ExpectMatch(how);
    });
  }
}

TEST_F(Adam8Test, AnyWholeBlocksGiveTheSameBits) {
  Adam8List<precision::BFloat16, precision::Half> list({5000}, 67, 1);
  setting_.options.grad_dtype = DType::kBFloat16;
  setting_.options.copy_dtype = DType::kFloat16;
  const AdamParameters parameters = MakeAdamParameters(setting_.options);
  for (const auto& [begin, end] :
       {std::pair(2560, 5000), std::pair(0, 256), std::pair(256, 2560)}) {
    EXPECT_EQ((Adam8Range<precision::BFloat16, precision::Half>(list.segments[0], parameters, begin,
                                                                end)),
              StepError::kNone);
  }
  list.Specify(setting_.rules, setting_.steps, setting_.state);
  list.ExpectMatch("ranges");
}

TEST_F(Adam8Test, RejectsHyperParametersOutOfRangeAndStepsThatWereNotFilled) {
  const AdamGroup good = setting_.groups[0];
  setting_.groups[0].beta1 = 1.0;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("adam8: beta1 of group 0 is 1")));
  setting_.groups[0] = good;
  list_.segments[1].group = 2;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("segment 1 is in group 2, but there are 2")));
  list_.segments[1].group = 1;
  setting_.steps[1] = {};
  ASSERT_OK(Run());
  EXPECT_THAT(cpu_.stream->Synchronize(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("adam8: group_steps[1]")));
  list_.ExpectMatch("after an error");
}

TEST_F(Adam8Test, RejectsEveryBadArray) {
  BadArrays arrays("adam8");
  Adam8Setting setting;
  setting.options.grad_dtype = DType::kBFloat16;
  setting.options.copy_dtype = DType::kFloat16;
  std::vector<Adam8Segment> segments(2);
  for (int32_t i = 0; i < 2; ++i) {
    Adam8Segment& s = segments[static_cast<size_t>(i)];
    const std::string of = " of segment " + std::to_string(i);
    s.size = 10 + i;
    s.group = i;
    arrays.Add("param" + of, s.param, s.size, BadArrays::kWritten);
    arrays.Add("m" + of, s.m, s.size, BadArrays::kWritten);
    arrays.Add("v" + of, s.v, s.size, BadArrays::kWritten);
    arrays.Add("grad" + of, s.grad, s.size, 2, 2, BadArrays::kRead);
    arrays.Add("param_copy" + of, s.param_copy, s.size, 2, 2, BadArrays::kWritten);
    arrays.Add("m_scale" + of, s.m_scale, 1, BadArrays::kWritten);
    arrays.Add("v_scale" + of, s.v_scale, 1, BadArrays::kWritten);
  }
  arrays.Add("state", setting.options.state, 1, BadArrays::kRead);
  arrays.Add("group_steps", setting.options.group_steps, 2, BadArrays::kRead);
  *const_cast<StepState*>(setting.options.state) = setting.state;
  arrays.ExpectRefused(*cpu_.stream,
                       [&] { return Adam8(segments, setting.options, *cpu_.stream); });
}

}  // namespace
}  // namespace brigade::kernels
