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
    EXPECT_THAT(group.AllReduce(nullptr, out, 8, kFloat32, {}, stream),
                Invalid("all_reduce: input is null with 8 elements"));
    EXPECT_THAT(group.AllReduce(in, nullptr, 8, kFloat32, {}, stream),
                Invalid("all_reduce: output is null with 8 elements"));
    EXPECT_THAT(group.AllReduce(in, out, -1, kFloat32, {}, stream), Invalid("count is -1"));
    EXPECT_THAT(group.AllReduce(in, out, int64_t{1} << 60, kFloat32, {}, stream),
                Invalid("address space"));
    EXPECT_THAT(group.AllReduce(in, in + 4, 8, kFloat32, {}, stream),
                Invalid("overlap in 16 bytes"));
    EXPECT_THAT(group.AllReduce(reinterpret_cast<char*>(in) + 1, out, 8, kFloat32, {}, stream),
                Invalid("not a multiple of its element's 4 bytes"));
    EXPECT_THAT(group.AllReduce(in, out, 8, static_cast<precision::DType>(77), {}, stream),
                Invalid("dtype is invalid"));
    EXPECT_THAT(group.AllReduce(in, out, 8, kFloat32, {static_cast<kernels::ReduceOp>(9)}, stream),
                Invalid("operation 9"));
    EXPECT_THAT(group.AllReduce(in, out, 8, kFloat32, By(static_cast<Algorithm>(20)), stream),
                Invalid("algorithm 20"));
    EXPECT_THAT(group.ReduceScatter(in, in + (1 - self.rank) * 8, 8, kFloat32, {}, stream),
                Invalid("overlap in 32 bytes"));
    EXPECT_THAT(group.AllGather(out + (1 - self.rank) * 8, out, 8, kFloat32, {}, stream),
                Invalid("overlap in 32 bytes"));
    EXPECT_THAT(group.AllToAll(in, in, 8, kFloat32, stream), Invalid("overlap in 64 bytes"));
    EXPECT_THAT(group.Broadcast(in, out, 8, kFloat32, 2, stream),
                Invalid("rank 2 is not in a group of 2"));
    EXPECT_THAT(group.Broadcast(in, out, 8, kFloat32, -1, stream), Invalid("rank -1"));
    EXPECT_THAT(group.Send(in, 8, kFloat32, self.rank, stream), Invalid("sends to itself"));
    EXPECT_THAT(group.Receive(out, 8, kFloat32, 5, stream),
                Invalid("rank 5 is not in a group of 2"));
    device::AddressRegistry::Global().Add(in, 256, device::Cuda(0), /*owned=*/false);
    EXPECT_THAT(group.AllReduce(in, out, 8, kFloat32, {}, stream),
                Invalid("input is in memory of cuda:0"));
    device::AddressRegistry::Global().Remove(in, 256, /*owned=*/false);
    // None of them was a call: the ranks are still in step.
    ASSERT_OK(group.status());
    ASSERT_OK(group.AllReduce(in, out, 8, kFloat32, {}, stream));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(out[7], 2.0f);
    EXPECT_EQ(out[8], 0.0f);
    EXPECT_THAT(Communicator::Create(nullptr, *self.context), Invalid("engine is null"));
  });
}

TEST(CommunicatorTest, RanksOutsideTheGroupAreSentNothingAndAnAbortNeedsNoReason) {
  OnThreads({.size = 2}, [](Rank& self) {
    Communicator& group = *self.communicator;
    std::vector<float> array(64);
    ASSERT_OK(group.AllReduce(array, absl::MakeSpan(array), {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(group.AllGatherHost({}).status());  // the rank that comes last counts for both
    EXPECT_GT(group.sent_bytes(1 - self.rank), 0);
    EXPECT_EQ(group.sent_bytes(2), 0);
    EXPECT_EQ(group.sent_bytes(-1), 0);
    self.AwaitOthers();
    group.Abort(absl::OkStatus());
    EXPECT_THAT(group.status(), StatusIs(absl::StatusCode::kCancelled));
  });
}

TEST(CommunicatorTest, ResolvesNoSignatureThatNoCallMayHave) {
  OnThreads({.size = 2}, [](Rank& self) {
    CollectiveSignature signature = {.kind = CollectiveKind::kAllReduce, .count = -1};
    EXPECT_THAT(self.communicator->Resolve(signature), Invalid("count is -1"));
    signature = {.kind = CollectiveKind::kAllReduce, .dtype = static_cast<precision::DType>(77)};
    EXPECT_THAT(self.communicator->WorkspaceFor(signature), Invalid("dtype is invalid"));
    EXPECT_THAT(self.communicator->Reserve(signature), Invalid("dtype is invalid"));
  });
}

TEST(CommunicatorTest, ResolvesWhatAnOptionStandsFor) {
  const auto resolved = [](Communicator& group, CollectiveKind kind, Reduction reduction,
                           Algorithm algorithm) {
    CollectiveSignature signature = {kind, algorithm, precision::DType::kBFloat16, {}, 64};
    signature.reduction = reduction;
    return group.Resolve(signature);
  };
  constexpr auto kAllReduce = CollectiveKind::kAllReduce;
  constexpr auto kOnce = Reduction::kRoundedOnce, kPerHop = Reduction::kRoundedPerHop;
  OnThreads({.size = 4}, [&](Rank& self) {
    Communicator& group = *self.communicator;
    EXPECT_EQ(resolved(group, kAllReduce, kOnce, Algorithm::kAuto)->algorithm, Algorithm::kDirect);
    EXPECT_EQ(resolved(group, kAllReduce, kPerHop, Algorithm::kAuto)->algorithm,
              Algorithm::kDirect);
    EXPECT_THAT(resolved(group, kAllReduce, kOnce, Algorithm::kRing),
                Invalid("all_reduce: algorithm ring has no reduction rounded_once"));
    EXPECT_THAT(resolved(group, kAllReduce, Reduction::kFp32Partials, Algorithm::kNative),
                Invalid("all_reduce: algorithm native has no reduction fp32_partials"));
    EXPECT_THAT(resolved(group, kAllReduce, kPerHop, Algorithm::kNative),
                Invalid("the engine has no native collective for the sum of bf16"));
    EXPECT_THAT(resolved(group, kAllReduce, kPerHop, Algorithm::kHierarchical),
                Invalid("hierarchical needs a topology, and the communicator has none"));
    EXPECT_THAT(resolved(group, CollectiveKind::kReduceScatter, kPerHop, Algorithm::kDoubleTree),
                Invalid("reduce_scatter: double_tree is for all_reduce"));
    EXPECT_THAT(
        resolved(group, CollectiveKind::kReduceScatter, kPerHop, Algorithm::kParameterServer),
        Invalid("reduce_scatter: parameter_server is for all_reduce"));
    EXPECT_EQ(resolved(group, CollectiveKind::kAllGather, kOnce, Algorithm::kRing)->algorithm,
              Algorithm::kRing);
    Topology topology;
    topology.ranks_of_node = {3, 1};
    topology.inside = topology.between = {1e-6, 1e9};
    ASSERT_OK(group.SetTopology(topology));
    EXPECT_THAT(resolved(group, kAllReduce, kPerHop, Algorithm::kHierarchical),
                Invalid("hierarchical needs nodes of one size: node 0 has 3 ranks, node 1 has 1"));
    EXPECT_EQ(resolved(group, kAllReduce, kPerHop, Algorithm::kDoubleTree)->ranks_per_node, 1);
    topology.ranks_of_node = {2, 2};
    ASSERT_OK(group.SetTopology(topology));
    EXPECT_EQ(resolved(group, kAllReduce, kPerHop, Algorithm::kHierarchical)->ranks_per_node, 2);
    EXPECT_EQ(resolved(group, kAllReduce, kPerHop, Algorithm::kRing)->ranks_per_node, 1);
    // Halves keep their part of it.
    auto half = group.Split(self.rank / 2, 0);
    ASSERT_OK(half);
    EXPECT_EQ(resolved(**half, kAllReduce, kPerHop, Algorithm::kDoubleTree)->ranks_per_node, 2);
    EXPECT_EQ(resolved(**half, kAllReduce, kPerHop, Algorithm::kHierarchical)->algorithm,
              Algorithm::kDirect);
    topology.ranks_of_node = {2, 2, 2};
    EXPECT_THAT(group.SetTopology(topology), Invalid("the topology has 6 ranks, the group 4"));
    ASSERT_OK(group.Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  });
}

TEST(CommunicatorTest, CallsOverSpansTakeTypeAndSizeFromThem) {
  OnThreads({.size = 2}, [](Rank& self) {
    Communicator& group = *self.communicator;
    device::Stream& stream = *self.stream;
    const std::vector<int32_t> two = {1 + self.rank, 5};
    std::vector<int32_t> sum(2), part(1), all(4), exchanged(2), shifted(2), root(2), received(2);
    ASSERT_OK(group.AllReduce(two, absl::MakeSpan(sum), {}, stream));
    ASSERT_OK(group.ReduceScatter(two, absl::MakeSpan(part), {}, stream));
    ASSERT_OK(group.AllGather(two, absl::MakeSpan(all), {}, stream));
    ASSERT_OK(group.AllToAll(two, absl::MakeSpan(exchanged), stream));
    ASSERT_OK(group.Shift(two, absl::MakeSpan(shifted), 1, stream));
    ASSERT_OK(group.Broadcast(two, absl::MakeSpan(root), 1, stream));
    ASSERT_OK(self.rank == 0 ? group.Send(absl::MakeConstSpan(two), 1, stream)
                             : group.Receive(absl::MakeSpan(received), 0, stream));
    ASSERT_OK(stream.Synchronize());
    EXPECT_EQ(sum, std::vector<int32_t>({3, 10}));
    EXPECT_EQ(part[0], self.rank == 0 ? 3 : 10);
    EXPECT_EQ(all, std::vector<int32_t>({1, 5, 2, 5}));
    EXPECT_EQ(exchanged,
              self.rank == 0 ? std::vector<int32_t>({1, 2}) : std::vector<int32_t>({5, 5}));
    EXPECT_EQ(shifted, std::vector<int32_t>({2 - self.rank, 5}));
    EXPECT_EQ(root, std::vector<int32_t>({2, 5}));
    if (self.rank == 1) {
      EXPECT_EQ(received, std::vector<int32_t>({1, 5}));
    }
    EXPECT_THAT(group.AllReduce(two, absl::MakeSpan(all), {}, stream),
                Invalid("all_reduce: an input of 2 elements and an output of 4 do not fit "
                        "between 2 ranks"));
    EXPECT_THAT(group.AllGather(two, absl::MakeSpan(sum), {}, stream), Invalid("all_gather"));
    EXPECT_THAT(group.ReduceScatter(two, absl::MakeSpan(sum), {}, stream), Invalid("do not fit"));
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

// Calls on two streams run in the order of the calls, scratch and all, whatever the streams are up
// to.
TEST(CommunicatorTest, OrdersItsCallsAcrossStreams) {
  device::RaceChecker checker;
  const RanksOptions options = {
      .size = 3, .random_delay = {.seed = 9, .max_delay_us = 300}, .race_checker = &checker};
  OnThreads(options, [](Rank& self) {
    auto other = self.context->CreateStream("other").value();
    constexpr int64_t kCount = 50;
    std::vector<float> input(3 * kCount, 1.0f), output(kCount);
    const ReduceOptions ring = By(Algorithm::kRing);  // its reduce-scatter uses scratch
    for (int i = 0; i < 20; ++i) {
      device::Stream& stream = i % 2 == 0 ? *self.stream : *other;
      ASSERT_OK(self.communicator->ReduceScatter(input, absl::MakeSpan(output), ring, stream));
    }
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(other->Synchronize());
    EXPECT_EQ(output, std::vector<float>(kCount, 3.0f));
  });
  EXPECT_THAT(checker.reports(), IsEmpty());
}

}  // namespace
}  // namespace brigade::collectives
