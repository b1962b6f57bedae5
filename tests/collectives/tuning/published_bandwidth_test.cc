// The model beside bus bandwidths that others have published of nodes of 8 H100 or H200 with 400
// Gb/s NICs, with one set of figures of the machine: collectives/tuning/topologies/hgx_h100.json.

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;
constexpr CollectiveKind kAllReduce = CollectiveKind::kAllReduce,
                         kReduceScatter = CollectiveKind::kReduceScatter;

// What the published figures are of. NCCL's rings and trees have a channel for each port of a node,
// which no program of ours has: their phases are written down here.
enum class Way { kRing, kRingPerPort, kTreePerPort };
const char* Name(Way way) {
  return way == Way::kRing ? "ring" : way == Way::kRingPerPort ? "ring per port" : "tree per port";
}

struct Published {
  int nodes;
  CollectiveKind operation;
  Way way;
  int64_t bytes;
  double gigabytes_per_s;
};

void PrintTo(const Published& point, std::ostream* out) {
  *out << Name(point.operation) << " of " << point.bytes << " bytes on " << point.nodes
       << " nodes, " << Name(point.way);
}

absl::StatusOr<Topology> Machine() {
  std::ifstream file("collectives/tuning/topologies/hgx_h100.json");
  return TopologyFromJson(
      std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
}

// One ring through all ranks for each port: each has its share of the data, and leaves each node by
// its port.
Phase RingPerPort(const Topology& topology, CollectiveKind operation, double bytes) {
  const int p = topology.ranks(), g = topology.ranks_of_node[0], rings = topology.between.ports;
  const int steps = (operation == kAllReduce ? 2 : 1) * (p - 1);
  const int crossings = (steps + g - 1) / g;
  const double sent = steps * bytes / p / rings;
  return {{steps - crossings, (rings - rings / g) * sent}, {crossings, sent}};
}

// Two trees over nodes for each port, and chains inside nodes, whose heads are different ranks.
Phase TreePerPort(const Topology& topology, double bytes) {
  const int g = topology.ranks_of_node[0];
  const auto steps = static_cast<int64_t>(2 * std::ceil(std::log2(topology.nodes())));
  return {{2 * (g - 1), (2 - 2.0 / g) * bytes}, {steps, 2 * bytes / topology.between.ports}};
}

std::vector<Phase> PhasesOf(const Topology& topology, const Published& point) {
  const auto bytes = static_cast<double>(point.bytes);
  if (point.way == Way::kRingPerPort) return {RingPerPort(topology, point.operation, bytes)};
  if (point.way == Way::kTreePerPort) return {TreePerPort(topology, bytes)};
  return PhasesOf(topology, Algorithm::kRing, point.operation, point.bytes).value();
}

// Predicted over published, less one.
double Deviation(const Published& point, int ranks_per_node = 8) {
  auto topology = Machine();
  EXPECT_OK(topology);
  const int ranks = point.nodes * ranks_per_node;
  topology->ranks_of_node = RanksOfNodes(ranks, ranks_per_node);
  const double seconds = SecondsOf(*topology, PhasesOf(*topology, point));
  const double predicted = BusBandwidth(point.operation, ranks, point.bytes, seconds) / 1e9;
  const double deviation = predicted / point.gigabytes_per_s - 1;
  std::printf("%s: published %g GB/s, predicted %.4g, %+.1f %%\n",
              ::testing::PrintToString(point).c_str(), point.gigabytes_per_s, predicted,
              100 * deviation);
  return deviation;
}

class RingTest : public ::testing::TestWithParam<Published> {};

TEST_P(RingTest, IsReproducedWithinFifteenPercent) {
  EXPECT_LT(std::abs(Deviation(GetParam())), 0.15);
}

// NCCL's ring on one node. The bandwidth inside nodes was chosen by the first.
INSTANTIATE_TEST_SUITE_P(
    OneNode, RingTest,
    ::testing::Values(Published{1, kAllReduce, Way::kRing, 8 * kGiB, 370},
                      // NVIDIA/nccl issue 1047
                      Published{1, kReduceScatter, Way::kRing, 128 * kMiB, 311},
                      Published{1, kReduceScatter, Way::kRing, kGiB, 349},
                      Published{1, kReduceScatter, Way::kRing, 8 * kGiB, 362}));

// NVIDIA/nccl issue 1229, which doesn't tell the size; the latency between nodes was chosen by
// these.
INSTANTIATE_TEST_SUITE_P(
    ReduceScatter, RingTest,
    ::testing::Values(Published{4, kReduceScatter, Way::kRingPerPort, 4 * kGiB, 360},
                      Published{8, kReduceScatter, Way::kRingPerPort, 4 * kGiB, 345},
                      Published{16, kReduceScatter, Way::kRingPerPort, 4 * kGiB, 320},
                      Published{32, kReduceScatter, Way::kRingPerPort, 4 * kGiB, 300},
                      Published{64, kReduceScatter, Way::kRingPerPort, 4 * kGiB, 280},
                      Published{128, kReduceScatter, Way::kRingPerPort, 4 * kGiB, 260}));

INSTANTIATE_TEST_SUITE_P(FourNodes, RingTest,
                         ::testing::Values(Published{4, kAllReduce, Way::kRingPerPort, 8 * kGiB,
                                                     366}));

TEST(PublishedBandwidthTest, OneRankANodeHasTheBandwidthOfANic) {
  EXPECT_LT(std::abs(Deviation({8, kAllReduce, Way::kRing, 8 * kGiB, 48.5}, 1)), 0.15);
}

// No ring could: 3,966 steps one after the other.
TEST(PublishedBandwidthTest, TwoThousandRanksAreATreeAndNotARing) {
  constexpr int64_t kBytes = 512'000'000;
  EXPECT_LT(std::abs(Deviation({248, kAllReduce, Way::kTreePerPort, kBytes, 350})), 0.15);
  EXPECT_LT(Deviation({248, kAllReduce, Way::kRingPerPort, kBytes, 350}), -0.8);
}

// Switches that add (NVLS) are not in the model: on one node each rank sends its data once, not
// twice.
TEST(PublishedBandwidthTest, AdditionInTheSwitchIsNotReproduced) {
  EXPECT_LT(Deviation({1, kAllReduce, Way::kRing, 8 * kGiB, 480}), -0.15);
  EXPECT_LT(Deviation({1, kAllReduce, Way::kRing, 8 * kGiB, 475}), -0.15);
  EXPECT_LT(Deviation({2, kAllReduce, Way::kRingPerPort, 8 * kGiB, 470}), -0.15);
}

}  // namespace
}  // namespace brigade::collectives
