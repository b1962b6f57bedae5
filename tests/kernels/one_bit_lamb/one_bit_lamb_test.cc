#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/one_bit_lamb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.empty()) return b.empty();
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Tensors of one rank, each cut into pieces of one tile, so that no piece is a whole tensor.
class Tensors {
 public:
  explicit Tensors(const std::vector<int64_t>& sizes) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    int64_t tiles = 0;
    for (const int64_t size : sizes) {
      spec::OneBitLambTensor tensor;
      std::vector<float>& gradient = gradients.emplace_back();
      for (int64_t i = 0; i < size; ++i) {
        tensor.x.param.push_back(normal(random));
        tensor.x.m.push_back(normal(random) * static_cast<float>(sizes.size()));
        // What has never had a gradient.
        const float root = i % 5 == 2 ? 0.0f : normal(random);
        tensor.x.v.push_back(root * root);
        gradient.push_back(normal(random));
      }
      tensor.ratio = 0.25f + static_cast<float>(wanted.size());
      wanted.push_back(tensor);
      const int64_t count = (size + kLambTile - 1) / kLambTile;
      places.push_back({0, count, tiles, std::max<int64_t>(count, 1), 0, 0});
      counts.push_back(size);
      tiles += count;
    }
    sums.resize(static_cast<size_t>(tiles));
    messages.resize(wanted.size());
    numbers.resize(wanted.size());
    trusts.resize(wanted.size());
    spec::OneBitLambFreeze(wanted);
    for (size_t t = 0; t < wanted.size(); ++t) {
      numbers[t].ratio = wanted[t].ratio;
      tensors.push_back({wanted[t].x.param, wanted[t].x.m, wanted[t].x.v});
      fresh.emplace_back(wanted[t].x.v.size());
      messages[t].resize(wanted[t].x.v.size());
    }
  }

  std::vector<OneBitLambSegment> Segments() {
    std::vector<OneBitLambSegment> segments;
    for (size_t t = 0; t < tensors.size(); ++t) {
      for (int64_t at = 0, tile = 0; at < counts[t]; at += kLambTile, ++tile) {
        spec::LambTensor& x = tensors[t];
        segments.push_back({x.param.data() + at, x.m.data() + at, x.v.data() + at,
                            fresh[t].data() + at, messages[t].data() + at,
                            std::min(kLambTile, counts[t] - at), 0, static_cast<int32_t>(t),
                            places[t].offset + tile});
      }
    }
    return segments;
  }
  std::vector<OneBitLambMessage> Messages() {
    std::vector<OneBitLambMessage> list;
    for (size_t t = 0; t < tensors.size(); ++t) {
      list.push_back({tensors[t].m.data(), gradients[t].data(), messages[t].data(), counts[t], 0,
                      static_cast<int32_t>(t)});
    }
    return list;
  }

  std::vector<spec::OneBitLambTensor> wanted;
  std::vector<std::vector<float>> gradients, fresh, messages;
  std::vector<spec::LambTensor> tensors;
  std::vector<LambTensor> places;
  std::vector<int64_t> counts;
  std::vector<OneBitLambSums> sums;
  std::vector<OneBitLambNumbers> numbers;
  std::vector<float> trusts;
};

struct Setting {
  explicit Setting(double weight_decay) : group({.weight_decay = weight_decay}) {
    rule.lamb.weight_decay = weight_decay;
    options.groups = {&group, 1};
    options.state = &state;
    options.group_steps = &step;
    state.grad_multiplier = 0.37f;
    state.step = 3;
  }
  Setting(const Setting&) = delete;

  spec::OneBitLambRule rule;
  LambGroup group;
  GroupStep step = {0.05f, 0.05f, 1.0f};
  StepState state = {};
  LambOptions options;
  OneBitLambConstants constants = MakeOneBitLambConstants({});
};

TEST(OneBitLambTest, PiecesHaveTheSpecificationsBits) {
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    SCOPED_TRACE(how);
    for (const double decay : {0.0, 0.01}) {
      Setting setting(decay);
      Tensors of({0, 1, 31, 8191, 8192, 8193, 300'000});
      double total = 0;
      // Twice: what is frozen keeps every bit.
      for (int i = 0; i < 2; ++i) {
        ASSERT_OK(OneBitLambFreeze(of.Segments(), of.numbers, absl::MakeSpan(of.sums), stream));
        ASSERT_OK(OneBitLambScales(of.places, of.counts, of.sums, &total,
                                   absl::MakeSpan(of.numbers), stream));
      }
      for (int i = 0; i < 3; ++i) {
        spec::OneBitLambStep(of.wanted, {of.gradients}, setting.state.grad_multiplier,
                             setting.step.lr, setting.rule, false,
                             [](const auto& sent) { return sent[0]; });
        ASSERT_OK(OneBitLambSend(of.Messages(), setting.options, of.numbers, stream));
        ASSERT_OK(OneBitLambReceive(of.Messages(), of.numbers, stream));
        ASSERT_OK(
            OneBitLambMoments(of.Segments(), setting.options, absl::MakeSpan(of.sums), stream));
        ASSERT_OK(OneBitLambTrusts(of.places, setting.options, setting.constants, of.sums,
                                   absl::MakeSpan(of.numbers), absl::MakeSpan(of.trusts), stream));
        std::vector<LambSegment> params;
        for (const OneBitLambSegment& s : of.Segments()) {
          params.push_back({const_cast<float*>(s.param), s.m, const_cast<float*>(s.v), nullptr,
                            nullptr, s.size, 0, &of.trusts[static_cast<size_t>(s.tensor)]});
        }
        ASSERT_OK(LambParams(params, setting.options, of.trusts, stream));
      }
      ASSERT_OK(stream.Synchronize());
      for (size_t t = 0; t < of.wanted.size(); ++t) {
        const spec::OneBitLambTensor& wanted = of.wanted[t];
        EXPECT_EQ(of.numbers[t].scale, wanted.scale) << t;
        EXPECT_EQ(of.numbers[t].factor, wanted.factor) << t;
        EXPECT_EQ(of.numbers[t].ratio, wanted.ratio) << t;
        EXPECT_TRUE(SameBits(of.tensors[t].param, wanted.x.param)) << t;
        EXPECT_TRUE(SameBits(of.tensors[t].m, wanted.x.m)) << t;
        EXPECT_TRUE(SameBits(of.tensors[t].v, wanted.x.v)) << t;
        EXPECT_TRUE(SameBits(of.fresh[t], wanted.fresh_v)) << t;
      }
    }
  });
}

// Of a momentum that is next to nothing: gradients of ordinary size stay in the range of floats.
TEST(OneBitLambTest, AScaleEndsAt2To20) {
  const CpuRun cpu = OnCpu(1);
  Tensors of({31, 9000, 500});
  for (const float smallest : {1e-3f, 1e-30f, 0x1p-149f}) {
    of.numbers.assign(3, {});
    std::fill(of.tensors[0].m.begin(), of.tensors[0].m.end(), smallest);
    double total = 0;
    ASSERT_OK(OneBitLambFreeze(of.Segments(), of.numbers, absl::MakeSpan(of.sums), *cpu.stream));
    ASSERT_OK(OneBitLambScales(of.places, of.counts, of.sums, &total, absl::MakeSpan(of.numbers),
                               *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    EXPECT_EQ(of.numbers[0].scale == 0x1p20f, smallest < 1e-3f) << of.numbers[0].scale;
    EXPECT_GT(of.numbers[0].scale, 1.0f);
    for (const int other : {1, 2}) EXPECT_LT(of.numbers[other].scale, 16.0f) << other;
  }
}

TEST(OneBitLambTest, ASkippedStepKeepsEveryBit) {
  const CpuRun cpu = OnCpu(2);
  Setting setting(0.01);
  setting.state.skip = 1;
  Tensors of({31, 9000});
  double total = 0;
  ASSERT_OK(OneBitLambFreeze(of.Segments(), of.numbers, absl::MakeSpan(of.sums), *cpu.stream));
  ASSERT_OK(OneBitLambScales(of.places, of.counts, of.sums, &total, absl::MakeSpan(of.numbers),
                             *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  const std::vector<float> fresh = of.fresh[1], m = of.tensors[1].m;
  const std::vector<double> sums(4, 1.0);
  ASSERT_OK(OneBitLambRatios({of.places.data(), 1}, setting.options, setting.constants, sums,
                             absl::MakeSpan(of.numbers), *cpu.stream));
  ASSERT_OK(
      OneBitLambMoments(of.Segments(), setting.options, absl::MakeSpan(of.sums), *cpu.stream));
  ASSERT_OK(OneBitLambTrusts(of.places, setting.options, setting.constants, of.sums,
                             absl::MakeSpan(of.numbers), absl::MakeSpan(of.trusts), *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(SameBits(of.fresh[1], fresh));
  EXPECT_TRUE(SameBits(of.tensors[1].m, m));
  EXPECT_EQ(of.numbers[0].ratio, 0.25f);
  EXPECT_EQ(of.numbers[1].factor, 1.0f);
}

TEST(OneBitLambTest, BadArgumentsAreNamed) {
  const CpuRun cpu = OnCpu(2);
  const Setting setting(0.0);
  Tensors of({31, 9000});
  const auto invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  std::vector<OneBitLambSegment> segments = of.Segments();
  segments[1].tensor = 2;
  EXPECT_THAT(OneBitLambFreeze(segments, of.numbers, absl::MakeSpan(of.sums), *cpu.stream),
              invalid("tensor of segment 1 is 2, must be 0 to 1"));
  segments = of.Segments();
  segments[2].first_tile = 3;
  EXPECT_THAT(OneBitLambMoments(segments, setting.options, absl::MakeSpan(of.sums), *cpu.stream),
              invalid("segment 2 has 1 tiles from 3 on, sums has 3"));
  segments[2].first_tile = kMost - 1;
  EXPECT_THAT(OneBitLambMoments(segments, setting.options, absl::MakeSpan(of.sums), *cpu.stream),
              invalid("segment 2 has 1 tiles from 9223372036854775806 on, sums has 3"));
  segments[2].first_tile = kMost;
  EXPECT_THAT(OneBitLambFreeze(segments, of.numbers, absl::MakeSpan(of.sums), *cpu.stream),
              invalid("segment 2 has 1 tiles from 9223372036854775807 on, sums has 3"));
  std::vector<OneBitLambMessage> messages = of.Messages();
  messages[0].message = nullptr;
  EXPECT_THAT(OneBitLambSend(messages, setting.options, of.numbers, *cpu.stream),
              invalid("message"));
  EXPECT_THAT(OneBitLambTrusts(of.places, setting.options, setting.constants, of.sums,
                               absl::MakeSpan(of.numbers), {}, *cpu.stream),
              invalid("trusts has 0 elements, the list needs 2"));
  double total = 0;
  EXPECT_THAT(
      OneBitLambScales(of.places, {}, of.sums, &total, absl::MakeSpan(of.numbers), *cpu.stream),
      invalid("sizes of 0 tensors, of 2"));
}

TEST(OneBitLambTest, EveryPassOfAStepRefusesItsOptionsAsLambDoes) {
  const CpuRun cpu = OnCpu(1);
  Tensors of({31, 9000});
  const auto expect_refused = [&](const std::vector<LambGroup>& groups, const char* text) {
    Setting setting(0.0);
    const std::vector<GroupStep> steps(groups.size(), setting.step);
    setting.options.groups = groups;
    setting.options.group_steps = steps.data();
    const std::vector<double> sums(6, 1.0);
    const absl::Span<OneBitLambNumbers> numbers = absl::MakeSpan(of.numbers);
    const absl::Status refused[] = {
        OneBitLambRatios(of.places, setting.options, setting.constants, sums, numbers, *cpu.stream),
        OneBitLambSend(of.Messages(), setting.options, of.numbers, *cpu.stream),
        OneBitLambMoments(of.Segments(), setting.options, absl::MakeSpan(of.sums), *cpu.stream),
        OneBitLambTrusts(of.places, setting.options, setting.constants, of.sums, numbers,
                         absl::MakeSpan(of.trusts), *cpu.stream)};
    for (const absl::Status& each : refused) {
      EXPECT_THAT(each, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
    }
  };
  expect_refused(std::vector<LambGroup>(kMaxLambGroups + 1),
                 ": there are 65 groups, must be 1 to 64");
  expect_refused({}, ": there are 0 groups, must be 1 to 64");
  expect_refused({{.beta1 = 1.0}}, ": beta1 of group 0 is 1");
  expect_refused({{.min_trust = 2.0, .max_trust = 1.0}}, ": min_trust of group 0 is 2");
  ASSERT_OK(cpu.stream->Synchronize());
}

}  // namespace
}  // namespace brigade::kernels
