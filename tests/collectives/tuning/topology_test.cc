#include "brigade/collectives/tuning/topology.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::testing::ElementsAre;
using testing::StatusIs;

TEST(TopologyTest, ReadsEveryKeyInItsUnit) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, TopologyFromJson(R"({
      "source": "a test",
      "inside": {"latency_us": 2, "gigabytes_per_s": 300, "ports": 4},
      "between": {"latency_us": 15, "gigabytes_per_s": 12.5, "ports": 2},
      "reduced_gigabytes_per_s": 500, "memory_gigabytes_per_s": 3350,
      "message_us": 0.25,
      "call_us": 3,
      "ranks_of_node": [4, 4, 3]})"));
  EXPECT_OK(Validate(topology));
  EXPECT_DOUBLE_EQ(topology.inside.latency_s, 2e-6);
  EXPECT_DOUBLE_EQ(topology.inside.bytes_per_s, 300e9);
  EXPECT_EQ(topology.inside.ports, 4);
  EXPECT_DOUBLE_EQ(topology.between.latency_s, 15e-6);
  EXPECT_DOUBLE_EQ(topology.between.bytes_per_s, 12.5e9);
  EXPECT_EQ(topology.between.ports, 2);
  EXPECT_DOUBLE_EQ(topology.message_s, 0.25e-6);
  EXPECT_DOUBLE_EQ(topology.call_s, 3e-6);
  EXPECT_DOUBLE_EQ(topology.reduced_bytes_per_s, 500e9);
  EXPECT_DOUBLE_EQ(topology.memory_bytes_per_s, 3350e9);
  EXPECT_THAT(topology.ranks_of_node, ElementsAre(4, 4, 3));
  EXPECT_EQ(topology.ranks(), 11);
  EXPECT_EQ(topology.nodes(), 3);
  EXPECT_FALSE(topology.Even());
}

TEST(TopologyTest, NeedsOnlyLatencyAndBandwidthOfBothLevels) {
  ASSERT_OK_AND_ASSIGN(Topology topology, TopologyFromJson(R"({
      "inside": {"latency_us": 2, "gigabytes_per_s": 300},
      "between": {"latency_us": 15, "gigabytes_per_s": 12.5}})"));
  EXPECT_EQ(topology.inside.ports, 1);
  EXPECT_EQ(topology.message_s, 0);
  EXPECT_EQ(topology.call_s, 0);
  EXPECT_TRUE(std::isinf(topology.reduced_bytes_per_s));
  EXPECT_EQ(topology.memory_bytes_per_s, 0);
  EXPECT_THAT(Validate(topology),
              StatusIs(absl::StatusCode::kInvalidArgument, "the topology has no nodes"));
  topology.ranks_of_node = RanksOfNodes(8, 4);
  EXPECT_OK(Validate(topology));
  EXPECT_TRUE(topology.Even());
}

TEST(TopologyTest, PutsTheRanksThatAreLeftOnTheLastNode) {
  EXPECT_THAT(RanksOfNodes(8, 4), ElementsAre(4, 4));
  EXPECT_THAT(RanksOfNodes(9, 4), ElementsAre(4, 4, 1));
  EXPECT_THAT(RanksOfNodes(3, 4), ElementsAre(3));
}

TEST(TopologyTest, FindsTheNodesOfAJobByLocalRanks) {
  ASSERT_OK_AND_ASSIGN(const auto nodes, RanksOfNodes({0, 1, 2, 0, 0, 1}));
  EXPECT_THAT(nodes, ElementsAre(3, 1, 2));
  EXPECT_THAT(RanksOfNodes({0, 0, 1, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "rank 3 has local rank 1 and not 2: ranks are not numbered node by node"));
  EXPECT_THAT(RanksOfNodes({1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "rank 0 has local rank 1 and not 0: ranks are not numbered node by node"));
}

TEST(TopologyTest, NamesWhatIsWrongInAFile) {
  const std::string level = R"({"latency_us": 2, "gigabytes_per_s": 300})";
  const auto with = [&](const std::string& keys) {
    return TopologyFromJson("{\"inside\": " + level + ", \"between\": " + level + keys + "}");
  };
  const std::vector<std::pair<absl::StatusOr<Topology>, const char*>> cases = {
      {TopologyFromJson("{"), "the topology is not JSON"},
      {TopologyFromJson("[1]"), "topology is [1]; it must be an object"},
      {TopologyFromJson("{}"), "the topology has no \"inside\""},
      {TopologyFromJson("{\"inside\": " + level + "}"), "the topology has no \"between\""},
      {with(R"(, "latency": 1)"), "topology has no key \"latency\""},
      {with(R"(, "source": 1)"), "topology.source is 1; it must be a string"},
      {with(R"(, "reduced_gigabytes_per_s": "x")"),
       "topology.reduced_gigabytes_per_s is \"x\"; it must be a number"},
      {with(R"(, "ranks_of_node": 8)"),
       "topology.ranks_of_node is 8; it must be an array; of each node, a whole number from 1 to "
       "1048576"},
      {with(R"(, "ranks_of_node": [8, 0])"),
       "topology.ranks_of_node is [8,0]; it must be an array; of each node, a whole number from 1 "
       "to 1048576"},
      {TopologyFromJson(R"({"inside": 3, "between": {}})"),
       "topology.inside is 3; it must be an object"},
      {TopologyFromJson(R"({"inside": {"ports": 0.5}, "between": {}})"),
       "topology.inside.ports is 0.5; it must be a whole number from 1 to 1048576"},
      {TopologyFromJson(R"({"inside": {"alpha": 1}, "between": {}})"),
       "topology.inside has no key \"alpha\""},
  };
  for (const auto& [topology, message] : cases) {
    EXPECT_THAT(topology, StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
}

TEST(TopologyTest, RefusesFiguresThatNoLinkHas) {
  Topology valid;
  valid.ranks_of_node = {2, 2};
  valid.inside = {1e-6, 1e9};
  valid.between = {1e-6, 1e9};
  ASSERT_OK(Validate(valid));
  const auto expect = [&](auto change, const char* message) {
    Topology topology = valid;
    change(topology);
    EXPECT_THAT(Validate(topology), StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  expect([](Topology& t) { t.ranks_of_node = {2, 0}; }, "a node of the topology has 0 ranks");
  expect(
      [](Topology& t) {
        t.ranks_of_node = {kMaxModelledRanks, 1};
      },
      "the topology has 1048577 ranks, more than 1048576");
  expect([](Topology& t) { t.inside.latency_s = -1; },
         "the latency inside nodes is -1; it must be 0 to 1 s");
  expect([](Topology& t) { t.inside.latency_s = NAN; },
         "the latency inside nodes is nan; it must be 0 to 1 s");
  expect([](Topology& t) { t.between.bytes_per_s = 0; },
         "the bandwidth between nodes is 0; it must be more than 0 bytes/s, and finite");
  expect([](Topology& t) { t.between.bytes_per_s = INFINITY; },
         "the bandwidth between nodes is inf; it must be more than 0 bytes/s, and finite");
  expect([](Topology& t) { t.inside.ports = 0; },
         "the number of ports inside nodes is 0; it must be 1 or more");
  expect([](Topology& t) { t.message_s = NAN; },
         "the time of a message is nan; it must be 0 to 1 s");
  expect([](Topology& t) { t.call_s = -1; }, "the time of a call is -1; it must be 0 to 1 s");
  expect([](Topology& t) { t.reduced_bytes_per_s = 0; },
         "a rank reduces 0 bytes/s; it must be more than 0");
  expect([](Topology& t) { t.memory_bytes_per_s = -1; },
         "a rank's memory has -1 bytes/s; it must be finite and not negative");
}

TEST(TopologyTest, ASubsetKeepsItsNodesIfItsRanksAreStillNodeByNode) {
  Topology topology;
  topology.ranks_of_node = {2, 3, 1};
  topology.message_s = 1e-6;
  const auto nodes = [&](std::vector<int> ranks) { return SubsetOf(topology, ranks); };
  EXPECT_THAT(nodes({0, 2, 3})->ranks_of_node, ElementsAre(1, 2));
  EXPECT_THAT(nodes({5, 4, 2})->ranks_of_node, ElementsAre(1, 2));
  EXPECT_EQ(nodes({1})->message_s, 1e-6);
  EXPECT_FALSE(nodes({0, 2, 1}).has_value());
}

}  // namespace
}  // namespace brigade::collectives
