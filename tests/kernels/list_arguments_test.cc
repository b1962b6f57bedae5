#include "brigade/kernels/list_arguments.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "brigade/device/context.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::IsOk;
using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

class ListArgumentsTest : public ::testing::Test {
 protected:
  ListArgumentsTest() : context_(device::Context::Create({}).value()) {
    stream_ = context_->CreateStream("compute").value();
    buffer_ = context_->Allocate(4096, device::Purpose::kScratch, "buffer").value();
    data_ = buffer_.as<float>().data();
  }

  struct Range {
    int64_t begin, size;  // in floats of the buffer
  };

  // One segment for each pair of (read, written) arrays.
  absl::Status Check(const std::vector<std::pair<Range, Range>>& list) {
    ListArguments arguments("op", {{"in", 4, false}, {"out", 4, true}}, *stream_);
    for (size_t i = 0; i < list.size(); ++i) {
      BRIGADE_RETURN_IF_ERROR(arguments.Add(
          i, list[i].first.size, {data_ + list[i].first.begin, data_ + list[i].second.begin}));
    }
    return arguments.CheckOverlap();
  }

  static auto Invalid(const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  }

  absl::Status One(int64_t size, const void* in, const void* out) {
    ListArguments arguments("op", {{"in", 4, false}, {"out", 4, true}}, *stream_);
    return arguments.Add(0, size, {in, out});
  }

  std::unique_ptr<device::Context> context_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer buffer_;
  float* data_;
};

TEST_F(ListArgumentsTest, AllowsInputsToOverlapAndArraysInAnyOrder) {
  EXPECT_OK(Check({{{0, 10}, {100, 10}}, {{5, 10}, {200, 10}}, {{0, 10}, {110, 10}}}));
  EXPECT_OK(Check({{{500, 10}, {900, 10}}, {{600, 10}, {20, 10}}, {{0, 10}, {400, 10}}}));
}

TEST_F(ListArgumentsTest, FindsEveryOverlapOfSomethingWritten) {
  EXPECT_THAT(Check({{{0, 10}, {100, 10}}, {{20, 10}, {109, 10}}}),
              Invalid("op: out of segment 0 and out of segment 1 overlap in 4 bytes"));
  EXPECT_THAT(Check({{{0, 10}, {9, 10}}}),
              Invalid("op: in of segment 0 and out of segment 0 overlap in 4 bytes"));
  // A long input that begins before a shorter one which ends earlier.
  EXPECT_THAT(Check({{{0, 100}, {500, 100}}, {{10, 5}, {99, 5}}}),
              Invalid("in of segment 0 and out of segment 1 overlap"));
  // A short output inside of a long one.
  EXPECT_THAT(Check({{{800, 1}, {50, 1}}, {{700, 40}, {30, 40}}}),
              Invalid("out of segment 1 and out of segment 0 overlap in 4 bytes"));
}

TEST_F(ListArgumentsTest, ChecksEachArrayBeforeAnythingElse) {
  EXPECT_OK(One(0, nullptr, nullptr));
  EXPECT_THAT(One(-1, data_, data_ + 100), Invalid("op: segment 0 has negative size -1"));
  EXPECT_THAT(One(3, nullptr, data_), Invalid("op: in of segment 0 is null with 3 elements"));
  EXPECT_THAT(One(3, data_, reinterpret_cast<char*>(data_) + 2),
              Invalid("not a multiple of its element's 4 bytes"));
  EXPECT_THAT(One(int64_t{1} << 62, data_, data_),
              Invalid("has 4611686018427387904 elements, more than any address space"));
  EXPECT_THAT(One(std::numeric_limits<int64_t>::max(), data_, data_), Invalid("address space"));
  EXPECT_THAT(One(1025, data_, data_),
              Invalid("in of segment 0 has 1025 elements and reaches 4 bytes past its buffer"));
}

// For the trace.
TEST_F(ListArgumentsTest, SaysHowManyBytesThereAreWhereNobodyChecksRaces) {
  const auto context = device::Context::Create({.checks = false}).value();
  const auto stream = context->CreateStream("compute").value();
  ListArguments arguments(
      "op", {{"in", 4, false}, Updated("state", 4), {"copy", 4, true, false}, {"out", 4, true}},
      *stream);
  // What is updated in place is read and written.
  ASSERT_OK(arguments.Add(0, 8, {data_, data_ + 16, nullptr, data_ + 32}));
  ASSERT_OK(arguments.Add(1, 3, {data_ + 8, data_ + 24, nullptr, data_ + 40}));
  ASSERT_OK(arguments.AddOperand("rate", data_ + 64, 1));
  int64_t bytes = 0;
  for (const device::Access& access : arguments.accesses()) bytes += access.bytes;
  EXPECT_EQ(bytes, (8 + 3) * (4 + 2 * 4 + 4) + 4);
}

TEST_F(ListArgumentsTest, KnowsMemoryOfAnotherDevice) {
  std::vector<float> gpu(10);
  device::AddressRegistry::Global().Add(gpu.data(), 40, device::Cuda(1), false);
  EXPECT_THAT(One(10, gpu.data(), data_),
              Invalid("op: in of segment 0 is in memory of cuda:1, but the stream is on cpu:0"));
  device::AddressRegistry::Global().Remove(gpu.data(), 40, false);
}

TEST_F(ListArgumentsTest, ChecksOperandsLikeArrays) {
  ListArguments arguments("op", {{"out", 4, true}}, *stream_);
  EXPECT_OK(arguments.Add(0, 10, {data_}));
  const double* null = nullptr;
  EXPECT_THAT(arguments.AddOperand("norm", null, 3), Invalid("op: norm is null with 3 elements"));
  EXPECT_OK(arguments.AddOperand("scale", static_cast<const float*>(data_ + 9), 1));
  EXPECT_THAT(arguments.CheckOverlap(),
              Invalid("op: out of segment 0 and scale overlap in 4 bytes"));
}

}  // namespace
}  // namespace brigade::kernels
