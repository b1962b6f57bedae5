#include "brigade/kernels/loco_quant/loco_quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/quant_testing.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/codecs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

std::vector<uint8_t> Bytes(const GuardedArray<uint8_t>& array) {
  return {array.data(), array.data() + array.size()};
}

// Arrays with their errors and messages, and what the specification makes of them.
template <typename T>
class Lists {
 public:
  Lists(const std::vector<int64_t>& sizes, QuantFormat format, uint32_t seed)
      : format_(format), random_(seed) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t size = sizes[i];
      arrays.emplace_back(size, static_cast<int64_t>(i % 9));
      errors.emplace_back(QuantBytes(size, kLocoErrors), 0);
      messages.emplace_back(QuantBytes(size, format), 0);
      wanted_.push_back(Bytes(errors.back()));
      segments.push_back(
          {arrays.back().data(), errors.back().data(), messages.back().data(), size});
    }
    Fill();
  }

  // Finite numbers of one magnitude a block, which differs between steps.
  void Fill() {
    std::normal_distribution<float> normal;
    for (auto& array : arrays) {
      for (int64_t begin = 0; begin < array.size(); begin += kQuantBlock) {
        const int exponent = static_cast<int>(random_() % 20) - 12;
        for (int64_t i = begin; i < std::min(begin + kQuantBlock, array.size()); ++i) {
          const float x = std::ldexp(normal(random_), exponent);
          array[i] = T(random_() % 16 == 0 ? std::copysign(0.0f, x) : x);
        }
      }
    }
  }

  // Runs a step and compares its messages and errors with the specification.
  void Step(const LocoParameters& parameters, device::Stream& stream, const std::string& how) {
    for (auto& message : messages) std::fill_n(message.data(), message.size(), uint8_t{0x77});
    const LocoQuantOptions options = {precision::kDType<T>, format_, parameters};
    ASSERT_OK(LocoQuantize(segments, options, stream));
    ASSERT_OK(stream.Synchronize());
    for (size_t i = 0; i < arrays.size(); ++i) {
      const auto message = spec::LocoQuantize(Values(arrays[i]), wanted_[i], BitsOf(format_),
                                              parameters.beta, parameters.forget);
      ASSERT_EQ(Bytes(messages[i]), message) << how << ", message of " << arrays[i].size();
      ASSERT_EQ(Bytes(errors[i]), wanted_[i]) << how << ", errors of " << arrays[i].size();
      EXPECT_TRUE(messages[i].GuardsAreIntact() && errors[i].GuardsAreIntact()) << how;
    }
  }

  std::deque<GuardedArray<T>> arrays;
  std::deque<GuardedArray<uint8_t>> errors, messages;
  std::vector<LocoSegment> segments;

 private:
  QuantFormat format_;
  std::mt19937 random_;
  std::vector<std::vector<uint8_t>> wanted_;
};

template <typename T>
class LocoQuantTypedTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(LocoQuantTypedTest, Types);

TYPED_TEST(LocoQuantTypedTest, GivesTheSpecificationsBytesOnEveryCpu) {
  for (const QuantFormat format : kQuantFormats) {
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      Lists<TypeParam> lists(QuantSizes(), format, 181);
      for (const float beta : {0.8f, 0.0f, 0.3f, 1.0f}) {
        lists.Step({.beta = beta}, stream, how);
        lists.Fill();
      }
      lists.Step({.forget = true}, stream, how);
      lists.Step({}, stream, how);
    });
  }
}

// Of each kind, at every place where a loop changes its way, with errors from before.
TYPED_TEST(LocoQuantTypedTest, MarksABlockThatIsNotFiniteAndKeepsItsErrors) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const QuantFormat format : kQuantFormats) {
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
        for (const int64_t at : {0, 15, 128, 255, 256, 700, 1100, 1279, 1290}) {
          Lists<TypeParam> lists({1300}, format, 182);
          lists.Step({}, stream, how);
          lists.Fill();
          lists.arrays[0][at] = TypeParam(bad);
          const std::vector<uint8_t> before = Bytes(lists.errors[0]);
          lists.Step({.forget = at % 2 == 0}, stream, how);
          const std::vector<uint8_t> after = Bytes(lists.errors[0]);
          const auto codes = [&](const std::vector<uint8_t>& errors) {
            const auto begin = errors.begin() + QuantCodesBegin(1300) + at / 256 * 256;
            return std::vector<uint8_t>(begin, begin + 256);
          };
          EXPECT_EQ(codes(after), codes(before)) << how << at;
          EXPECT_NE(after, before) << how << at;
        }
      }
    });
  }
}

// An error makes a sum overflow that is finite without it.
TEST(LocoQuantTest, ASumThatOverflowsMarksItsBlock) {
  const CpuRun cpu = OnCpu(1);
  Lists<float> lists({300}, QuantFormat::kInt4, 183);
  const float large = std::numeric_limits<float>::max();
  for (int64_t i = 0; i < 300; ++i) lists.arrays[0][i] = i % 2 == 0 ? large : 0.9f * large;
  lists.Step({.beta = 0.0f}, *cpu.stream, "finite");
  for (int64_t i = 0; i < 300; ++i) lists.arrays[0][i] = large;
  lists.Step({}, *cpu.stream, "with errors");
  float maximum;
  std::memcpy(&maximum, lists.messages[0].data(), sizeof(maximum));
  EXPECT_TRUE(std::isnan(maximum));
}

TEST(LocoQuantTest, KeepsErrorsOfEveryMagnitude) {
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    Lists<float> lists({277 * 256}, QuantFormat::kInt4, 184);
    for (int64_t block = 0; block < 277; ++block) {
      for (int64_t i = 0; i < 256; ++i) {
        const float fraction = static_cast<float>(i * 37 % 256 - 255) / 255.0f;
        lists.arrays[0][block * 256 + i] =
            std::ldexp(1.5f * fraction, static_cast<int>(block) - 149);
      }
    }
    for (int step = 0; step < 3; ++step) lists.Step({}, stream, how);
  });
}

TEST(LocoQuantTest, TakesLargeListsOnSeveralThreads) {
  const CpuRun cpu = OnCpu(2);
  Lists<BFloat16> lists({1, 2'100'001, 77, 33'333}, QuantFormat::kInt4, 185);
  for (int step = 0; step < 2; ++step) lists.Step({}, *cpu.stream, "large");
}

TEST(LocoQuantTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  BadArrays arrays("loco_quantize");
  const LocoQuantOptions options = {DType::kFloat16, QuantFormat::kInt4, {}};
  std::vector<LocoSegment> segments(2);
  for (int i = 0; i < 2; ++i) {
    segments[i].size = 10 + i;
    const std::string of = " of segment " + std::to_string(i);
    arrays.Add("array" + of, segments[i].array, 10 + i, 2, 2, BadArrays::kRead);
    arrays.Add("error" + of, segments[i].error, 320, 1, 64, BadArrays::kWritten);
    arrays.Add("message" + of, segments[i].message, 192, 1, 64, BadArrays::kWritten);
  }
  arrays.ExpectRefused(*cpu.stream, [&] { return LocoQuantize(segments, options, *cpu.stream); });
}

TEST(LocoQuantTest, RejectsBadOptions) {
  const CpuRun cpu = OnCpu(1);
  Lists<float> lists({10}, QuantFormat::kInt4, 186);
  const auto expect = [&](const LocoQuantOptions& options, const std::string& message) {
    EXPECT_THAT(
        LocoQuantize(lists.segments, options, *cpu.stream),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("loco_quantize: " + message)));
  };
  expect({.dtype = DType::kInt64}, "dtype of array is int64");
  expect({.format = static_cast<QuantFormat>(2)}, "format is 2, must be int8 or int4");
  expect({.parameters = {.beta = 1.01f}}, "beta is 1.01, must be in [0, 1]");
  expect({.parameters = {.beta = std::nanf("")}}, "beta is nan, must be in [0, 1]");
  lists.segments[0].size = -1;
  expect({}, "segment 0 has negative size -1");
}

}  // namespace
}  // namespace brigade::kernels
