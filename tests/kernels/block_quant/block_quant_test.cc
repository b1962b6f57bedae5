#include "brigade/kernels/block_quant/block_quant.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <utility>
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

// Finite numbers of one magnitude a block, zeros of both signs among them.
template <typename T>
void FillBlocks(GuardedArray<T>& array, std::mt19937& random) {
  std::normal_distribution<float> normal;
  for (int64_t begin = 0; begin < array.size(); begin += kQuantBlock) {
    const int exponent = static_cast<int>(random() % 20) - 12;
    for (int64_t i = begin; i < std::min(begin + kQuantBlock, array.size()); ++i) {
      const float x = std::ldexp(normal(random), exponent);
      array[i] = T(random() % 16 == 0 ? std::copysign(0.0f, x) : x);
    }
  }
}

// Arrays, their messages, and arrays for what comes back.
template <typename T>
class Lists {
 public:
  Lists(const std::vector<int64_t>& sizes, QuantFormat format, uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t size = sizes[i];
      const auto offset = static_cast<int64_t>(i % 9);
      arrays.emplace_back(size, offset);
      FillBlocks(arrays.back(), random);
      messages.emplace_back(QuantBytes(size, format), 0);
      back.emplace_back(size, offset);
      quantize.push_back({arrays.back().data(), messages.back().data(), size});
      dequantize.push_back({messages.back().data(), back.back().data(), size});
    }
  }

  void ExpectTheSpecification(QuantFormat format, const std::string& how) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      const std::vector<uint8_t> wanted = spec::Quantize(Values(arrays[i]), BitsOf(format));
      ASSERT_EQ(static_cast<size_t>(messages[i].size()), wanted.size());
      ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), messages[i].data()))
          << how << ", message of " << arrays[i].size();
      EXPECT_TRUE(messages[i].GuardsAreIntact()) << how;
      std::vector<float> values =
          spec::Dequantize(wanted, static_cast<size_t>(arrays[i].size()), BitsOf(format));
      for (float& value : values) value = spec::Round(kFormat<T>, value);
      EXPECT_TRUE(Matches(back[i], values)) << how << ", segment " << i;
    }
  }

  std::deque<GuardedArray<T>> arrays, back;
  std::deque<GuardedArray<uint8_t>> messages;
  std::vector<QuantizeSegment> quantize;
  std::vector<DequantizeSegment> dequantize;
};

template <typename T>
class BlockQuantTypedTest : public ::testing::Test {
 protected:
  static void Run(const Lists<T>& lists, QuantFormat format, device::Stream& stream) {
    const BlockQuantOptions options = {precision::kDType<T>, format};
    ASSERT_OK(BlockQuantize(lists.quantize, options, stream));
    ASSERT_OK(BlockDequantize(lists.dequantize, options, stream));
    ASSERT_OK(stream.Synchronize());
  }
};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(BlockQuantTypedTest, Types);

TYPED_TEST(BlockQuantTypedTest, GivesTheSpecificationsBytesOnEveryCpu) {
  for (const QuantFormat format : kQuantFormats) {
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      Lists<TypeParam> lists(QuantSizes(), format, 81);
      this->Run(lists, format, stream);
      lists.ExpectTheSpecification(format, how);
    });
  }
}

// Of each kind, alone in a block and at every place where a loop changes its way.
TYPED_TEST(BlockQuantTypedTest, MarksEveryBlockThatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const QuantFormat format : kQuantFormats) {
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
        for (const int64_t at : {0, 15, 128, 255, 256, 700, 1100, 1279}) {
          Lists<TypeParam> lists({1280}, format, 82);
          lists.arrays[0][at] = TypeParam(bad);
          this->Run(lists, format, stream);
          lists.ExpectTheSpecification(format, how);
          for (int64_t i = 0; i < 1280; ++i) {
            ASSERT_EQ(std::isfinite(static_cast<float>(lists.back[0][i])), i / 256 != at / 256)
                << how << ", element " << i << " beside " << at;
          }
        }
      }
    });
  }
}

TYPED_TEST(BlockQuantTypedTest, StreamsLargeResultsOutWithTheSameBytes) {
  for (const QuantFormat format : kQuantFormats) {
    // The message of 4 bits is streamed, too.
    Lists<TypeParam> lists({1, 8'500'001, 77, 33'333}, format, 83);
    const CpuRun cpu = OnCpu(2);
    this->Run(lists, format, *cpu.stream);
    lists.ExpectTheSpecification(format, "streamed");
  }
}

// From the smallest subnormal to the largest number, in each of which the maximum comes back.
TEST(BlockQuantTest, KeepsMaximaOfEveryMagnitude) {
  for (const QuantFormat format : kQuantFormats) {
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      Lists<float> lists({277 * 256}, format, 84);
      for (int64_t block = 0; block < 277; ++block) {
        for (int64_t i = 0; i < 256; ++i) {
          const float fraction = static_cast<float>(i * 37 % 256 - 255) / 255.0f;
          lists.arrays[0][block * 256 + i] =
              std::ldexp(1.99f * fraction, static_cast<int>(block) - 149);
        }
      }
      ASSERT_OK(BlockQuantize(lists.quantize, {DType::kFloat32, format}, stream));
      ASSERT_OK(BlockDequantize(lists.dequantize, {DType::kFloat32, format}, stream));
      ASSERT_OK(stream.Synchronize());
      lists.ExpectTheSpecification(format, how);
      for (int64_t block = 0; block < 277; ++block) {
        EXPECT_EQ(lists.back[0][block * 256], lists.arrays[0][block * 256]) << how << block;
      }
    });
  }
}

TEST(BlockQuantTest, WhatCameBackBecomesTheSameMessage) {
  const CpuRun cpu = OnCpu(2);
  for (const QuantFormat format : kQuantFormats) {
    const BlockQuantOptions options = {DType::kFloat32, format};
    Lists<float> first({100'003}, format, 85), second({100'003}, format, 86);
    ASSERT_OK(BlockQuantize(first.quantize, options, *cpu.stream));
    second.dequantize[0] = {first.messages[0].data(), second.arrays[0].data(), 100'003};
    ASSERT_OK(BlockDequantize(second.dequantize, options, *cpu.stream));
    ASSERT_OK(BlockQuantize(second.quantize, options, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    EXPECT_TRUE(std::equal(first.messages[0].data(),
                           first.messages[0].data() + first.messages[0].size(),
                           second.messages[0].data()));
  }
}

TEST(BlockQuantTest, SizesOfMessages) {
  EXPECT_EQ(QuantBytes(0, QuantFormat::kInt8), 0);
  EXPECT_EQ(QuantBytes(1, QuantFormat::kInt8), 64 + 256);
  EXPECT_EQ(QuantBytes(1, QuantFormat::kInt4), 64 + 128);
  EXPECT_EQ(QuantBytes(16 * 256, QuantFormat::kInt8), 64 + 4096);
  EXPECT_EQ(QuantBytes(16 * 256 + 1, QuantFormat::kInt4), 128 + 17 * 128);
  EXPECT_EQ(QuantBytes(int64_t{1} << 40, QuantFormat::kInt8),
            (int64_t{1} << 40) + (int64_t{1} << 34));
}

TEST(BlockQuantTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  const BlockQuantOptions options = {DType::kFloat16, QuantFormat::kInt4};
  const auto add = [](BadArrays& arrays, auto& segments, bool quantize) {
    for (int i = 0; i < 2; ++i) {
      segments[i].size = 10 + i;
      const std::string of = " of segment " + std::to_string(i);
      arrays.Add("array" + of, segments[i].array, 10 + i, 2, 2,
                 quantize ? BadArrays::kRead : BadArrays::kWritten);
      arrays.Add("message" + of, segments[i].message, 192, 1, 64,
                 quantize ? BadArrays::kWritten : BadArrays::kRead);
    }
  };
  BadArrays there("block_quantize");
  std::vector<QuantizeSegment> quantize(2);
  add(there, quantize, true);
  there.ExpectRefused(*cpu.stream, [&] { return BlockQuantize(quantize, options, *cpu.stream); });
  BadArrays back("block_dequantize");
  std::vector<DequantizeSegment> dequantize(2);
  add(back, dequantize, false);
  back.ExpectRefused(*cpu.stream,
                     [&] { return BlockDequantize(dequantize, options, *cpu.stream); });
}

TEST(BlockQuantTest, RejectsUnsupportedTypes) {
  const CpuRun cpu = OnCpu(1);
  Lists<float> lists({10}, QuantFormat::kInt8, 87);
  const auto expect = [&](const BlockQuantOptions& options, const std::string& message) {
    EXPECT_THAT(
        BlockQuantize(lists.quantize, options, *cpu.stream),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block_quantize: " + message)));
    EXPECT_THAT(
        BlockDequantize(lists.dequantize, options, *cpu.stream),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block_dequantize: " + message)));
  };
  expect({DType::kInt64, QuantFormat::kInt8}, "dtype of array is int64");
  expect({DType::kFloat32, static_cast<QuantFormat>(2)}, "format is 2, must be int8 or int4");
  lists.quantize[0].size = lists.dequantize[0].size = -1;
  expect({}, "segment 0 has negative size -1");
}

}  // namespace
}  // namespace brigade::kernels
