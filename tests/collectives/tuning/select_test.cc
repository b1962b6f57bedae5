#include "brigade/collectives/tuning/select.h"

#include <string>
#include <utility>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using testing::StatusIs;

constexpr int64_t kKiB = 1 << 10, kGiB = 1 << 30;

// 10 us and 1 GB/s everywhere; a node has this many ports.
Topology Nodes(std::vector<int> ranks_of_node, int ports) {
  Topology topology;
  topology.ranks_of_node = std::move(ranks_of_node);
  topology.inside = {10e-6, 1e9, 1};
  topology.between = {10e-6, 1e9, ports};
  return topology;
}

TEST(SelectTest, TakesFewStepsForLittleDataAndFewBytesAPortForMuch) {
  const Topology topology = Nodes({4, 4}, 1);
  ASSERT_OK_AND_ASSIGN(const Choice little, Select(topology, CollectiveKind::kAllReduce, kKiB));
  EXPECT_EQ(little.algorithm, Algorithm::kDirect);
  EXPECT_NEAR(little.seconds, 2 * (10e-6 + 16 * 128e-9), 1e-12);
  // All four ranks of a node send half of all by its port, twice: 4 n; a ring 2 * 7/8 n.
  ASSERT_OK_AND_ASSIGN(const Choice much, Select(topology, CollectiveKind::kAllReduce, kGiB));
  EXPECT_EQ(much.algorithm, Algorithm::kBidirectionalRing);
  EXPECT_EQ(
      much.reason,
      "bidirectional_ring for all_reduce of 1 GiB on 2 nodes of 4 ranks: 1.879 s, before ring "
      "with 1.879 s");
}

TEST(SelectTest, CountsPortsAndNotNodes) {
  // With a port for each rank nothing is shared, and direct has fewer steps for fewer bytes.
  ASSERT_OK_AND_ASSIGN(const Choice choice,
                       Select(Nodes({4, 4}, 4), CollectiveKind::kAllReduce, kGiB));
  EXPECT_EQ(choice.algorithm, Algorithm::kDirect);
}

TEST(SelectTest, ChoosesAmongTheCallersAlgorithms) {
  Topology topology = Nodes({4, 4, 4}, 1);
  topology.inside.bytes_per_s = 100e9;
  ASSERT_OK_AND_ASSIGN(const Choice best, Select(topology, CollectiveKind::kAllReduce, kGiB));
  EXPECT_EQ(best.algorithm, Algorithm::kHierarchical);
  ASSERT_OK_AND_ASSIGN(const Choice only,
                       Select(Nodes({4}, 1), CollectiveKind::kAllGather, kKiB, {Algorithm::kRing}));
  EXPECT_EQ(only.reason,
            "ring for all_gather of 1 KiB on 4 ranks of one node: 30.8 us, and no other algorithm");
}

TEST(SelectTest, TakesTheFirstOfEquals) {
  const Topology topology = Nodes({2}, 1);  // of two ranks a ring is direct
  for (const auto& [first, second] : {std::pair(Algorithm::kRing, Algorithm::kDirect),
                                      std::pair(Algorithm::kDirect, Algorithm::kRing)}) {
    ASSERT_OK_AND_ASSIGN(const Choice choice,
                         Select(topology, CollectiveKind::kAllReduce, kKiB, {first, second}));
    EXPECT_EQ(choice.algorithm, first);
  }
}

TEST(SelectTest, PassesOverWhatDoesNotExistHere) {
  const Topology uneven = Nodes({3, 2}, 1);
  ASSERT_OK_AND_ASSIGN(const Choice choice, Select(uneven, CollectiveKind::kAllReduce, kKiB,
                                                   {Algorithm::kHierarchical, Algorithm::kRing}));
  EXPECT_EQ(choice.reason,
            "ring for all_reduce of 1 KiB on 5 ranks of 2 nodes: 81.6 us, and no other algorithm");
  EXPECT_THAT(Select(uneven, CollectiveKind::kAllReduce, kKiB,
                     {Algorithm::kHierarchical, Algorithm::kHalvingDoubling}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "no algorithm for all_reduce of 1 KiB on 5 ranks of 2 nodes: "
                       "hierarchical needs nodes of one size, they have 2 to 3 ranks; "
                       "halving_doubling needs a power of two, there are 5 ranks"));
  EXPECT_THAT(
      Select(uneven, CollectiveKind::kAllReduce, kKiB, {}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "no algorithm for all_reduce of 1 KiB on 5 ranks of 2 nodes: none was given"));
  EXPECT_THAT(Select(Nodes({}, 1), CollectiveKind::kAllReduce, kKiB),
              StatusIs(absl::StatusCode::kInvalidArgument, "the topology has no nodes"));
}

TEST(SelectTest, ShowsTimesAndSizes) {
  EXPECT_EQ(ShowSeconds(3.424e-6), "3.42 us");
  EXPECT_EQ(ShowSeconds(0.0125), "12.5 ms");
  EXPECT_EQ(ShowSeconds(0), "0 us");
  EXPECT_EQ(ShowSeconds(90.914), "90.91 s");
  EXPECT_EQ(ShowBytes(0), "0 B");
  EXPECT_EQ(ShowBytes(1000), "1000 B");
  EXPECT_EQ(ShowBytes(1536), "1536 B");
  EXPECT_EQ(ShowBytes(64 << 20), "64 MiB");
}

}  // namespace
}  // namespace brigade::collectives
