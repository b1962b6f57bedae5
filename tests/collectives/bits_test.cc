// Which bits collectives give, and how many bytes they send.

#include <vector>

#include "brigade/collectives/algorithms/program.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/collectives/bits.h"
#include "brigade/tests/collectives/ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using precision::BFloat16;
using precision::Half;

template <typename T>
class BitsTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(BitsTest, Types);

TYPED_TEST(BitsTest, OfEachAlgorithm) {
  for (const int size : {2, 3, 7}) {
    const RanksOptions options = {.size = size};
    ExpectBitsOfTheAlgorithms<TypeParam>(options, ThreadEngines(options), 4099);
  }
}

TEST(TrafficTest, EqualsTheFormulas) {
  for (const int size : {1, 2, 4, 8}) {
    OnThreads({.size = size}, [&](Rank& self) {
      const int64_t count = 64 * size;
      std::vector<float> small(count), large(count * size), other(count * size);
      const auto sent = [&] {
        int64_t bytes = 0;
        for (int to = 0; to < size; ++to) bytes += self.communicator->sent_bytes(to);
        return bytes;
      };
      int64_t before = 0;
      const auto expect = [&](absl::Status status, int64_t elements, const char* what) {
        ASSERT_OK(status);
        // Counted when the call returns: the last rank has enqueued for all.
        EXPECT_EQ(sent() - before, elements * 4) << what << " of " << size;
        before = sent();
      };
      Communicator& group = *self.communicator;
      for (const Algorithm algorithm : kAlgorithms) {
        const ReduceOptions sum = By(algorithm);
        const GatherOptions gather = {algorithm};
        expect(group.AllReduce(small.data(), small.data(), count, kFloat32, sum, *self.stream),
               2 * (size - 1) * count / size, "all_reduce");
        ASSERT_OK(group.Barrier(*self.stream));
        expect(group.ReduceScatter(large.data(), small.data(), count, kFloat32, sum, *self.stream),
               (size - 1) * count, "reduce_scatter");
        ASSERT_OK(group.Barrier(*self.stream));
        expect(group.AllGather(small.data(), large.data(), count, kFloat32, gather, *self.stream),
               (size - 1) * count, "all_gather");
        ASSERT_OK(group.Barrier(*self.stream));
        expect(group.AllToAll(large.data(), other.data(), count, kFloat32, *self.stream),
               (size - 1) * count, "all_to_all");
        ASSERT_OK(group.Barrier(*self.stream));
        expect(group.Shift(large.data(), other.data(), count, kFloat32, -1, *self.stream),
               size > 1 ? count : 0, "shift");
        ASSERT_OK(group.Barrier(*self.stream));
        expect(group.Broadcast(small.data(), small.data(), count, kFloat32, 0, *self.stream),
               self.rank == 0 ? (size - 1) * count : 0, "broadcast");
        ASSERT_OK(group.Barrier(*self.stream));
      }
      ASSERT_OK(self.stream->Synchronize());
    });
  }
}

// A rank that no power of two holds sends all it has to a partner, which sends all it gets back.
TEST(TrafficTest, OfHalvingDoublingBeyondAPowerOfTwo) {
  constexpr int64_t kCount = 16 * 4 * 10;
  constexpr int kSize = 6, kCore = 4;
  const CollectiveSignature signature = {CollectiveKind::kAllReduce,
                                         Algorithm::kHalvingDoubling,
                                         precision::DType::kFloat32,
                                         {},
                                         kCount};
  for (int rank = 0; rank < kSize; ++rank) {
    std::vector<int64_t> elements(kSize);
    CountWireElements(signature, rank, absl::MakeSpan(elements));
    int64_t sent = 0;
    for (const int64_t each : elements) sent += each;
    const int64_t in_core = 2 * (kCore - 1) * kCount / kCore;
    EXPECT_EQ(sent, rank >= kCore ? kCount : in_core + (rank + kCore < kSize ? kCount : 0)) << rank;
  }
}

// Odd counts: no formula, but what the blocks add up to, and the neighbours of a ring only.
TEST(TrafficTest, RingsTalkToTheNextRankOnly) {
  for (const int64_t count : {0, 1, 5, 100, 1003}) {
    CollectiveSignature signature = {
        CollectiveKind::kAllReduce, Algorithm::kRing, precision::DType::kFloat32, {}, count};
    constexpr int kSize = 5;
    int64_t total = 0;
    for (int rank = 0; rank < kSize; ++rank) {
      std::vector<int64_t> elements(kSize);
      CountWireElements(signature, rank, absl::MakeSpan(elements));
      for (int to = 0; to < kSize; ++to) {
        total += elements[to];
        EXPECT_TRUE(to == (rank + 1) % kSize || elements[to] == 0);
      }
    }
    EXPECT_EQ(total, 2 * (kSize - 1) * count);
  }
}

}  // namespace
}  // namespace brigade::collectives
