#include "brigade/parallel/plan/group_cost.h"

#include <vector>

#include "brigade/collectives/tuning/select.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using collectives::CollectiveKind;
using ::testing::ElementsAre;

// Nodes of 8 ranks: 1 us and 100 GB/s inside, 10 us and `ports` ports of 10 GB/s between.
Machine Nodes(int ports) {
  Machine machine;
  machine.device = {
      .name = "d", .peak_flops = 1e12, .memory_bytes = 1e9, .memory_bytes_per_s = 1e9};
  machine.ranks_per_node = 8;
  machine.topology.inside = {1e-6, 100e9, 1};
  machine.topology.between = {10e-6, 10e9, ports};
  return machine;
}

TEST(TopologyOfTest, LaysTheRanksOfAGroupOnNodes) {
  const Machine machine = Nodes(8);
  EXPECT_THAT(TopologyOf(machine, {1, 8}).ranks_of_node, ElementsAre(8));
  EXPECT_THAT(TopologyOf(machine, {1, 16}).ranks_of_node, ElementsAre(8, 8));
  EXPECT_THAT(TopologyOf(machine, {4, 4}).ranks_of_node, ElementsAre(2, 2));
  EXPECT_THAT(TopologyOf(machine, {8, 3}).ranks_of_node, ElementsAre(1, 1, 1));
  EXPECT_THAT(TopologyOf(machine, {64, 2}).ranks_of_node, ElementsAre(1, 1));
  EXPECT_THAT(TopologyOf(machine, {3, 6}).ranks_of_node, ElementsAre(3, 3));
  EXPECT_THAT(TopologyOf(machine, {5, 4}).ranks_of_node, ElementsAre(2, 2));
}

TEST(TopologyOfTest, GivesAGroupItsShareOfTheNodesPorts) {
  EXPECT_EQ(TopologyOf(Nodes(8), {1, 16}).between.ports, 8);
  EXPECT_EQ(TopologyOf(Nodes(8), {4, 4}).between.ports, 2);
  EXPECT_EQ(TopologyOf(Nodes(8), {8, 4}).between.ports, 1);
  EXPECT_EQ(TopologyOf(Nodes(8), {8, 4}).between.bytes_per_s, 10e9);
  // Eight groups on two ports: a quarter of one each.
  EXPECT_EQ(TopologyOf(Nodes(2), {8, 4}).between.ports, 1);
  EXPECT_DOUBLE_EQ(TopologyOf(Nodes(2), {8, 4}).between.bytes_per_s, 2.5e9);
}

TEST(GroupCostsTest, TakesTheBestAlgorithmOfTheCostModel) {
  const Machine machine = Nodes(8);
  GroupCosts costs(machine);
  for (const RankGroup group : {RankGroup{1, 8}, {1, 7}, {4, 16}, {8, 128}, {3, 5}}) {
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
      for (const int64_t bytes : {int64_t{4096}, int64_t{1} << 20, int64_t{1} << 33}) {
        ASSERT_OK_AND_ASSIGN(const auto best,
                             collectives::Select(TopologyOf(machine, group), kind, bytes));
        EXPECT_NEAR(costs.Collective(group, kind, static_cast<double>(bytes)) / best.seconds, 1,
                    1e-9)
            << group.stride << " " << group.size << " " << bytes;
      }
    }
  }
}

TEST(GroupCostsTest, SendsNothingAlone) {
  const Machine machine = Nodes(8);
  GroupCosts costs(machine);
  EXPECT_EQ(costs.Collective({4, 1}, CollectiveKind::kAllReduce, 1e9), 0);
  EXPECT_EQ(costs.Shift({4, 1}, 1e9), 0);
  EXPECT_EQ(costs.AllToAll({4, 1}, 1e9), 0);
  EXPECT_EQ(costs.Collective({4, 2}, CollectiveKind::kAllReduce, 0), 0);
}

TEST(GroupCostsTest, ShiftsAsFastAsTheSlowestHop) {
  const Machine machine = Nodes(8), narrow = Nodes(2);
  GroupCosts costs(machine), slow(narrow);
  EXPECT_DOUBLE_EQ(costs.Shift({1, 8}, 1e9), 1e-6 + 0.01);
  EXPECT_DOUBLE_EQ(costs.Shift({4, 4}, 1e9), 10e-6 + 0.1);
  EXPECT_DOUBLE_EQ(costs.Shift({8, 4}, 1e9), 10e-6 + 0.1);
  EXPECT_DOUBLE_EQ(slow.Shift({8, 4}, 1e9), 10e-6 + 0.4);
}

TEST(GroupCostsTest, SendsAllButItsOwnPartToAll) {
  const Machine machine = Nodes(8);
  GroupCosts costs(machine);
  EXPECT_NEAR(costs.AllToAll({1, 4}, 1e9), 0.0075, 1e-5);
  EXPECT_NEAR(costs.AllToAll({8, 4}, 1e9), 0.075, 1e-4);
}

}  // namespace
}  // namespace brigade::parallel
