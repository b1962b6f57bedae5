#include "brigade/collectives/communicator.h"

#include <vector>

#include "brigade/device/address_registry.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/conformance.h"
#include "brigade/tests/collectives/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

auto Invalid(const char* text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
}

TEST(CommunicatorTest, BadArgumentsAreNamedAndNothingHappens) {
  OnThreads({.size = 2}, [](Rank& self) {
    Communicator& group = *self.communicator;
    device::Stream& stream = *self.stream;
    std::vector<float> a(64, 1.0f), b(64);
    float* const in = a.data();
    float* const out = b.data();
    EXPECT_THAT(group.AllReduce(nullptr, out, 8, {}, stream),
                Invalid("all_reduce: input is null with 8 elements"));
    EXPECT_THAT(group.AllReduce(in, nullptr, 8, {}, stream),
                Invalid("all_reduce: output is null with 8 elements"));
    EXPECT_THAT(group.AllReduce(in, out, -1, {}, stream), Invalid("count is -1"));
    EXPECT_THAT(group.AllReduce(in, out, int64_t{1} << 60, {}, stream), Invalid("address space"));
    EXPECT_THAT(group.AllReduce(in, in + 4, 8, {}, stream), Invalid("overlap in 16 bytes"));
    EXPECT_THAT(group.AllReduce(reinterpret_cast<char*>(in) + 1, out, 8, {}, stream),
                Invalid("not a multiple of its element's 4 bytes"));
    EXPECT_THAT(group.AllReduce(in, out, 8, {static_cast<precision::DType>(77)}, stream),
                Invalid("dtype is invalid"));
    EXPECT_THAT(group.AllReduce(in, out, 8, {{}, static_cast<kernels::ReduceOp>(9)}, stream),
                Invalid("operation 9"));
    EXPECT_THAT(group.AllReduce(in, out, 8, {{}, {}, static_cast<Algorithm>(5)}, stream),
                Invalid("algorithm 5"));
    EXPECT_THAT(group.ReduceScatter(in, in + (1 - self.rank) * 8, 8, {}, stream),
                Invalid("overlap in 32 bytes"));
    EXPECT_THAT(group.AllGather(out + (1 - self.rank) * 8, out, 8, {}, stream),
                Invalid("overlap in 32 bytes"));
    EXPECT_THAT(group.AllToAll(in, in, 8, {}, stream), Invalid("overlap in 64 bytes"));
    EXPECT_THAT(group.Broadcast(in, out, 8, 2, {}, stream),
                Invalid("rank 2 is not in a group of 2"));
    EXPECT_THAT(group.Broadcast(in, out, 8, -1, {}, stream), Invalid("rank -1"));
    EXPECT_THAT(group.Send(in, 8, self.rank, {}, stream), Invalid("sends to itself"));
    EXPECT_THAT(group.Receive(out, 8, 5, {}, stream), Invalid("rank 5 is not in a group of 2"));
    device::AddressRegistry::Global().Add(in, 256, device::Cuda(0), /*owned=*/false);
    EXPECT_THAT(group.AllReduce(in, out, 8, {}, stream), Invalid("input is in memory of cuda:0"));
    device::AddressRegistry::Global().Remove(in, 256, /*owned=*/false);
    // None of them was a call: the ranks are still in step.
    ASSERT_OK(group.status());
    ASSERT_OK(group.AllReduce(in, out, 8, {}, stream));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(out[7], 2.0f);
    EXPECT_EQ(out[8], 0.0f);
    EXPECT_THAT(Communicator::Create(nullptr, *self.context), Invalid("engine is null"));
  });
}

TEST(CommunicatorTest, SplitsByColorInTheOrderOfKeys) { ConformSplit(ThreadEngines({.size = 5})); }

TEST(CommunicatorTest, ShrinksOnlyToOthersThanItsOwnRank) {
  OnThreads({.size = 2}, [](Rank& self) {
    EXPECT_THAT(self.communicator->Shrink({self.rank}), Invalid("cannot go on without rank"));
    EXPECT_THAT(self.communicator->Shrink({5}), Invalid("without rank 5"));
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  });
}

// Calls on two streams run in the order of the calls, scratch and all, whatever the streams are up to.
TEST(CommunicatorTest, OrdersItsCallsAcrossStreams) {
  device::RaceChecker checker;
  const RanksOptions options = {
      .size = 3, .random_delay = {.seed = 9, .max_delay_us = 300}, .race_checker = &checker};
  OnThreads(options, [](Rank& self) {
    auto other = self.context->CreateStream("other").value();
    constexpr int64_t kCount = 50;
    std::vector<float> input(3 * kCount, 1.0f), output(kCount);
    const ReduceOptions ring = {.algorithm = Algorithm::kRing};  // its reduce-scatter uses scratch
    for (int i = 0; i < 20; ++i) {
      device::Stream& stream = i % 2 == 0 ? *self.stream : *other;
      ASSERT_OK(
          self.communicator->ReduceScatter(input.data(), output.data(), kCount, ring, stream));
    }
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(other->Synchronize());
    EXPECT_EQ(output, std::vector<float>(kCount, 3.0f));
  });
  EXPECT_THAT(checker.reports(), IsEmpty());
}

}  // namespace
}  // namespace brigade::collectives
