#include "brigade/collectives/tuning/auto_algorithm.h"

#include "brigade/collectives/tuning/select.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

Topology Nodes(int nodes) {
  Topology topology;
  topology.ranks_of_node = RanksOfNodes(8 * nodes, 8);
  topology.inside = {3e-6, 370e9};
  topology.between = {20e-6, 48e9, 8};
  topology.message_s = 1e-6;
  return topology;
}

CollectiveSignature AllReduceOf(int64_t bytes, Reduction reduction) {
  CollectiveSignature signature = {CollectiveKind::kAllReduce, Algorithm::kAuto,
                                   precision::DType::kBFloat16};
  signature.count = bytes / 2;
  signature.reduction = reduction;
  return signature;
}

TEST(AutoAlgorithmTest, TakesWhatTheModelPrefers) {
  for (const int nodes : {1, 2, 16, 128}) {
    AutoAlgorithm automatic(Nodes(nodes));
    for (const int64_t bytes : {int64_t{1} << 10, int64_t{1} << 20, int64_t{1} << 30}) {
      const auto choice = Select(Nodes(nodes), CollectiveKind::kAllReduce, bytes);
      EXPECT_EQ(automatic.Choose(AllReduceOf(bytes, Reduction::kRoundedPerHop)), choice->algorithm);
    }
  }
}

TEST(AutoAlgorithmTest, TreatsSizesUpToAPowerOfTwoAlike) {
  AutoAlgorithm automatic(Nodes(16));
  const auto choose = [&](int64_t bytes) {
    return automatic.Choose(AllReduceOf(bytes, Reduction::kRoundedPerHop));
  };
  EXPECT_EQ(choose((1 << 20) - 2), choose(1 << 20));
  EXPECT_EQ(choose((1 << 19) + 2), choose(1 << 20));
  EXPECT_EQ(choose(0), choose(2));
}

// On one node of a port direct sends the fewest bytes and steps; where partial sums travel in fp32
// it sends half.
TEST(AutoAlgorithmTest, CountsTheBytesOfFp32PartialSums) {
  Topology topology;
  topology.ranks_of_node = {4, 4};
  topology.inside = topology.between = {10e-6, 1e9, 1};
  AutoAlgorithm automatic(topology);
  constexpr int64_t kBytes = 1 << 30;
  EXPECT_NE(automatic.Choose(AllReduceOf(kBytes, Reduction::kRoundedPerHop)), Algorithm::kDirect);
  const auto direct = Select(topology, CollectiveKind::kAllReduce, kBytes, {Algorithm::kDirect});
  const auto others = Select(topology, CollectiveKind::kAllReduce, 2 * kBytes);
  EXPECT_EQ(automatic.Choose(AllReduceOf(kBytes, Reduction::kFp32Partials)),
            others->seconds < direct->seconds ? others->algorithm : Algorithm::kDirect);
}

}  // namespace
}  // namespace brigade::collectives
