#include "brigade/kernels/dequant_reduce/dequant_reduce.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "brigade/kernels/block_quant/block_quant.h"
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

// What each rank sent for a list of segments: the messages of a rank lie one after the other, those
// of the ranks at equal distances.
class Received {
 public:
  Received(const std::vector<int64_t>& sizes, int64_t ranks, QuantFormat format, uint32_t seed)
      : sizes_(sizes), ranks_(ranks), format_(format), stride_(64), buffer_(0, 0) {
    for (const int64_t size : sizes) stride_ += QuantBytes(size, format);
    buffer_ = GuardedArray<uint8_t>(ranks * stride_, 0);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t at = rank * stride_;
      for (const int64_t size : sizes) {
        std::vector<float> values(static_cast<size_t>(size));
        for (float& value : values) value = 100.0f * normal(random);
        Put(at, values);
        at += QuantBytes(size, format);
      }
    }
  }

  // Replaces what rank `rank` sent for the first segment.
  void Replace(int64_t rank, const std::vector<float>& values) { Put(rank * stride_, values); }

  std::vector<DequantReduceSegment> Segments() const {
    std::vector<DequantReduceSegment> segments;
    const uint8_t* messages = buffer_.data();
    for (const int64_t size : sizes_) {
      segments.push_back({messages, nullptr, size});
      messages += QuantBytes(size, format_);
    }
    return segments;
  }

  DequantReduceParameters Parameters(float factor) const { return {ranks_, stride_, factor}; }

  std::vector<float> Sum(const DequantReduceSegment& segment, float factor) const {
    std::vector<std::vector<uint8_t>> messages;
    const auto* const first = static_cast<const uint8_t*>(segment.messages);
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const uint8_t* const begin = first + rank * stride_;
      messages.emplace_back(begin, begin + QuantBytes(segment.size, format_));
    }
    return spec::DequantReduce(messages, static_cast<size_t>(segment.size), BitsOf(format_),
                               factor);
  }

 private:
  void Put(int64_t at, const std::vector<float>& values) {
    const std::vector<uint8_t> message = spec::Quantize(values, BitsOf(format_));
    std::copy(message.begin(), message.end(), buffer_.data() + at);
  }

  std::vector<int64_t> sizes_;
  int64_t ranks_;
  QuantFormat format_;
  int64_t stride_;
  GuardedArray<uint8_t> buffer_;
};

std::vector<int64_t> Sizes() { return {0, 1, 127, 129, 0, 255, 256, 257, 1023, 1025, 5000, 0}; }

template <typename T>
class DequantReduceTypedTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(DequantReduceTypedTest, Types);

TYPED_TEST(DequantReduceTypedTest, AddsInTheSpecificationsOrderOnEveryCpu) {
  for (const QuantFormat format : kQuantFormats) {
    for (const int64_t ranks : {1, 2, 3, 9}) {
      const Received received(Sizes(), ranks, format, 91);
      const float factor = ranks == 1 ? 1.0f : 0.3f;
      OnEveryCpu([&](device::Stream& stream, const std::string& how) {
        std::deque<GuardedArray<TypeParam>> targets;
        auto segments = received.Segments();
        for (auto& segment : segments) {
          targets.emplace_back(segment.size, static_cast<int64_t>(targets.size() % 5));
          segment.target = targets.back().data();
        }
        DequantReduceOptions options = {format, received.Parameters(factor)};
        options.target_dtype = precision::kDType<TypeParam>;
        ASSERT_OK(DequantReduce(segments, options, stream));
        ASSERT_OK(stream.Synchronize());
        for (size_t i = 0; i < segments.size(); ++i) {
          std::vector<float> wanted = received.Sum(segments[i], factor);
          for (float& value : wanted) value = spec::Round(kFormat<TypeParam>, value);
          EXPECT_TRUE(Matches(targets[i], wanted)) << how << ", ranks " << ranks << ", " << i;
        }
      });
    }
  }
}

// Runs a list whose targets are messages, and compares with the specification.
void ExpectRequantized(const Received& received, QuantFormat format, QuantFormat to, float factor,
                       device::Stream& stream, const std::string& how) {
  std::deque<GuardedArray<uint8_t>> targets;
  auto segments = received.Segments();
  for (auto& segment : segments) {
    targets.emplace_back(QuantBytes(segment.size, to), 0);
    std::fill(targets.back().data(), targets.back().data() + targets.back().size(), 0x77);
    segment.target = targets.back().data();
  }
  DequantReduceOptions options = {format, received.Parameters(factor)};
  options.target_format = to;
  ASSERT_OK(DequantReduce(segments, options, stream));
  ASSERT_OK(stream.Synchronize());
  for (size_t i = 0; i < segments.size(); ++i) {
    const std::vector<uint8_t> wanted =
        spec::Quantize(received.Sum(segments[i], factor), BitsOf(to));
    ASSERT_EQ(static_cast<size_t>(targets[i].size()), wanted.size());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), targets[i].data())) << how << ", " << i;
    EXPECT_TRUE(targets[i].GuardsAreIntact()) << how;
  }
}

TEST(DequantReduceTest, QuantizesTheSumAgainOnEveryCpu) {
  for (const QuantFormat format : kQuantFormats) {
    for (const QuantFormat to : kQuantFormats) {
      const Received received(Sizes(), 4, format, 92);
      OnEveryCpu([&](device::Stream& stream, const std::string& how) {
        ExpectRequantized(received, format, to, 0.25f, stream, how);
      });
    }
  }
}

// Large enough for stores past the caches.
TEST(DequantReduceTest, StreamsLargeMessagesOutWithTheSameBytes) {
  const CpuRun cpu = OnCpu(2);
  const Received received({4'400'001, 300}, 2, QuantFormat::kInt4, 93);
  ExpectRequantized(received, QuantFormat::kInt4, QuantFormat::kInt8, 1.0f, *cpu.stream, "large");
}

TEST(DequantReduceTest, OneRanksBadBlockIsNaNInTheSumAndItsMessage) {
  std::vector<float> bad(700, 1.0f);
  bad[300] = std::numeric_limits<float>::infinity();
  Received received({700}, 3, QuantFormat::kInt8, 94);
  received.Replace(1, bad);
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    GuardedArray<float> target(700, 0);
    auto segments = received.Segments();
    segments[0].target = target.data();
    ASSERT_OK(DequantReduce(segments, {QuantFormat::kInt8, received.Parameters(1.0f)}, stream));
    ASSERT_OK(stream.Synchronize());
    for (int64_t i = 0; i < 700; ++i) ASSERT_EQ(std::isnan(target[i]), i / 256 == 1) << how << i;
    ExpectRequantized(received, QuantFormat::kInt8, QuantFormat::kInt4, 1.0f, stream, how);
  });
}

// Each is finite, their sum is not.
TEST(DequantReduceTest, ASumThatOverflowsMarksItsBlock) {
  const CpuRun cpu = OnCpu(1);
  Received received({4}, 2, QuantFormat::kInt8, 95);
  for (const int64_t rank : {0, 1}) received.Replace(rank, {0x1.8p127f, 1.0f, 0.0f, 2.0f});
  ExpectRequantized(received, QuantFormat::kInt8, QuantFormat::kInt8, 1.0f, *cpu.stream, "sum");
}

TEST(DequantReduceTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  for (const bool to_message : {false, true}) {
    BadArrays arrays("dequant_reduce");
    DequantReduceOptions options = {QuantFormat::kInt4, {2, 384, 0.5f}};
    if (to_message) options.target_format = QuantFormat::kInt8;
    std::vector<DequantReduceSegment> segments = {{nullptr, nullptr, 10}, {nullptr, nullptr, 11}};
    for (int i = 0; i < 2; ++i) {
      const std::string of = " of segment " + std::to_string(i);
      // One rank's: the other's are checked as well, but lie where the first one's say.
      arrays.Add("messages" + of, segments[i].messages, 192, 1, 64, BadArrays::kRead);
      to_message ? arrays.Add("target" + of, segments[i].target, 320, 1, 64, BadArrays::kWritten)
                 : arrays.Add("target" + of, segments[i].target, 10 + i, 4, 4, BadArrays::kWritten);
    }
    arrays.ExpectRefused(*cpu.stream,
                         [&] { return DequantReduce(segments, options, *cpu.stream); });
  }
}

TEST(DequantReduceTest, RejectsBadOptions) {
  const CpuRun cpu = OnCpu(1);
  const Received received({300}, 2, QuantFormat::kInt8, 96);
  GuardedArray<float> target(300, 0);
  auto segments = received.Segments();
  segments[0].target = target.data();
  const DequantReduceOptions good = {QuantFormat::kInt8, received.Parameters(1.0f)};
  const auto expect = [&](const DequantReduceOptions& options, const std::string& message) {
    EXPECT_THAT(
        DequantReduce(segments, options, *cpu.stream),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dequant_reduce: " + message)));
  };
  DequantReduceOptions bad = good;
  bad.format = static_cast<QuantFormat>(7);
  expect(bad, "format is 7, must be int8 or int4");
  bad = good;
  bad.target_format = static_cast<QuantFormat>(7);
  expect(bad, "target_format is 7");
  bad = good;
  bad.target_dtype = DType::kInt32;
  expect(bad, "dtype of target is int32");
  bad = good;
  bad.parameters.ranks = 0;
  expect(bad, "ranks is 0, must be at least 1");
  bad.parameters.ranks = int64_t{1} << 60;
  expect(bad, "1152921504606846976 ranks at a stride of");
  bad = good;
  bad.parameters.stride = 100;
  expect(bad, "stride is 100, must be a multiple of 64");
  bad.parameters.stride = 512;
  expect(bad, "stride is 512, but a message of segment 0 has 576 bytes");
  bad = good;
  bad.parameters.factor = std::nanf("");
  expect(bad, "factor is nan, must be finite");
  EXPECT_OK(DequantReduce(segments, good, *cpu.stream));
  EXPECT_OK(cpu.stream->Synchronize());
}

}  // namespace
}  // namespace brigade::kernels
