#include "brigade/collectives/tuning/cost_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/algorithms/program.h"
#include "brigade/tests/collectives/tuning/schedules.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using testing::StatusIs;

constexpr CollectiveKind kOperations[] = {
    CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather};

Topology Nodes(std::vector<int> ranks_of_node, int ports_between = 1, int ports_inside = 1) {
  Topology topology;
  topology.ranks_of_node = std::move(ranks_of_node);
  topology.inside = {3e-6, 100e9, ports_inside};
  topology.between = {20e-6, 10e9, ports_between};
  return topology;
}

std::vector<Topology> SmallTopologies() {
  std::vector<Topology> all;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    all.push_back(Nodes({ranks}));
    all.push_back(Nodes({ranks}, 4));
  }
  all.push_back(Nodes({8}, 1, 2));
  for (int nodes = 2; nodes <= 9; ++nodes) {
    for (const int size : {1, 2, 3, 4}) {
      for (const int ports : {1, 2, 4, 6}) {
        all.push_back(Nodes(std::vector<int>(nodes, size), ports));
      }
    }
  }
  for (const int ports : {1, 2, 4}) {
    for (const std::vector<int>& sizes :
         {std::vector<int>{3, 1, 2}, {1, 4}, {2, 1}, {5, 5, 4}, {1, 1, 1, 6, 1}}) {
      all.push_back(Nodes(sizes, ports));
    }
  }
  return all;
}

std::string Describe(const Topology& topology, Algorithm algorithm, CollectiveKind operation) {
  return absl::StrCat(std::string(Name(algorithm)), " ", std::string(Name(operation)), " on ",
                      absl::StrJoin(topology.ranks_of_node, "+"), " ranks, ports ",
                      topology.inside.ports, " inside, ", topology.between.ports, " between");
}

// The loads of a phase: its longest path counted hop by hop, and each port's bytes.
Phase Count(const Topology& topology, const std::vector<Message>& messages) {
  const std::vector<int> node = NodesOf(topology);
  std::map<int, std::vector<Message>> steps;
  for (const Message& each : messages) steps[each.step].push_back(each);
  using Hops = std::pair<int64_t, int64_t>;     // between nodes, inside: the first counts more
  std::map<std::pair<int, int>, Hops> longest;  // of a stream, to a rank
  std::map<std::tuple<bool, int, int>, double> bytes;  // between nodes?, rank or node, which port
  std::map<int, int64_t> queued;                       // of a rank
  for (const auto& [step, together] : steps) {
    auto arrived = longest;
    std::map<int, int64_t> sent;
    for (const Message& each : together) {
      const int first =
          static_cast<int>(std::find(node.begin(), node.end(), node[each.from]) - node.begin());
      const bool between = node[each.from] != node[each.to];
      Hops hops = longest[{each.stream, each.from}];
      ++(between ? hops.first : hops.second);
      Hops& longer = arrived[{each.stream, each.to}];
      longer = std::max(longer, hops);
      const int lane = each.lane >= 0 ? each.lane : between ? each.from - first : 0;
      const int all = between ? topology.between.ports : topology.inside.ports;
      bytes[{between, between ? node[each.from] : each.from, lane % all}] += each.bytes;
      if (++sent[each.from] > 1) ++queued[each.from];
    }
    longest = arrived;
  }
  Phase phase;
  Hops most;
  for (const auto& [where, hops] : longest) most = std::max(most, hops);
  std::tie(phase.between.steps, phase.inside.steps) = most;
  for (const auto& [port, sent] : bytes) {
    Load& load = std::get<0>(port) ? phase.between : phase.inside;
    load.bytes = std::max(load.bytes, sent);
  }
  for (const auto& [rank, messages] : queued) phase.queued = std::max(phase.queued, messages);
  return phase;
}

void ExpectEqual(const Load& model, const Load& counted, const char* level) {
  EXPECT_EQ(model.steps, counted.steps) << level;
  EXPECT_NEAR(model.bytes, counted.bytes, 1e-9 * counted.bytes) << level;
}

TEST(CostModelTest, AgreesWithEveryMessageCountedOneByOne) {
  int compared = 0;
  for (const Topology& topology : SmallTopologies()) {
    for (const Algorithm algorithm : kModelledAlgorithms) {
      for (const CollectiveKind operation : kOperations) {
        if (algorithm == Algorithm::kDoubleTree && !topology.Even()) continue;  // an upper bound
        // Blocks and halves are whole.
        const int64_t bytes = int64_t{32} * topology.ranks();
        const auto model = PhasesOf(topology, algorithm, operation, bytes);
        if (absl::IsFailedPrecondition(model.status())) continue;
        SCOPED_TRACE(Describe(topology, algorithm, operation));
        ASSERT_OK(model);
        Schedule schedule = ScheduleOf(topology, algorithm, operation, bytes);
        ASSERT_EQ(model->size(), schedule.size());
        for (size_t i = 0; i < schedule.size(); ++i) {
          Phase counted = Count(topology, schedule[i]);
          // Its messages follow each other, and none waits.
          if (algorithm == Algorithm::kDoubleTree && (*model)[i].queued == 0) counted.queued = 0;
          ExpectEqual((*model)[i].inside, counted.inside, "inside");
          ExpectEqual((*model)[i].between, counted.between, "between");
          EXPECT_EQ((*model)[i].queued, counted.queued);
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

// Elements that leave by each port when the engines carry out the algorithm that goes this way.
TEST(CostModelTest, CountsTheBytesOfThePrograms) {
  for (const Topology& topology : SmallTopologies()) {
    const std::vector<int> node = NodesOf(topology);
    const int p = topology.ranks();
    for (const Algorithm algorithm : kModelledAlgorithms) {
      if (topology.inside.ports > 1 ||
          (algorithm != Algorithm::kRing && topology.between.ports > 1)) {
        continue;  // these programs' ports are the engine's choice
      }
      if (algorithm == Algorithm::kDoubleTree && !topology.Even()) continue;  // an upper bound
      if (algorithm == Algorithm::kParameterServer) continue;  // counts what its port takes in too
      for (const CollectiveKind operation : kOperations) {
        SCOPED_TRACE(Describe(topology, algorithm, operation));
        if (!PhasesOf(topology, algorithm, operation, 0).ok()) continue;
        // Its halves, which are tested, load different ports most.
        if (algorithm == Algorithm::kBidirectionalRing && operation == CollectiveKind::kAllReduce)
          continue;
        const int64_t elements = int64_t{32} * p;  // blocks of one size
        CollectiveSignature shape;
        shape.kind = operation;
        shape.algorithm = algorithm;
        if (topology.Even()) shape.ranks_per_node = topology.ranks_of_node[0];
        shape.count = operation == CollectiveKind::kAllReduce ? elements : elements / p;
        std::vector<double> inside(p), between(topology.nodes());
        for (int rank = 0; rank < p; ++rank) {
          std::vector<int64_t> to(p);
          CountWireElements(shape, rank, absl::MakeSpan(to));
          for (int other = 0; other < p; ++other) {
            (node[rank] == node[other] ? inside[rank] : between[node[rank]]) += to[other];
          }
        }
        ASSERT_OK_AND_ASSIGN(const auto phases, PhasesOf(topology, algorithm, operation, elements));
        double model_inside = 0, model_between = 0;
        for (const Phase& phase : phases) {
          model_inside += phase.inside.bytes;
          model_between += phase.between.bytes;
        }
        EXPECT_DOUBLE_EQ(model_inside, *std::max_element(inside.begin(), inside.end()));
        EXPECT_DOUBLE_EQ(model_between, *std::max_element(between.begin(), between.end()));
      }
    }
  }
}

double Seconds(const Topology& topology, Algorithm algorithm, CollectiveKind operation,
               int64_t bytes) {
  const auto phases = PhasesOf(topology, algorithm, operation, bytes);
  EXPECT_OK(phases);
  return phases.ok() ? SecondsOf(topology, *phases) : 0;
}

// The textbook's times, from its own parameters: p ranks, n bytes, a, b and c.
TEST(CostModelTest, GivesTheTextbooksTimes) {
  constexpr int kRanks = 16;
  constexpr int64_t kBytes = 1 << 20;
  constexpr double kStep = 3e-6, kByte = 1e-11, kSum = 1e-12;
  Topology topology = Nodes({kRanks});
  topology.reduced_bytes_per_s = 1 / kSum;
  const double part = 15.0 / 16 * kBytes, n = kBytes;
  const auto all_reduce = [&](Algorithm algorithm) {
    return Seconds(topology, algorithm, CollectiveKind::kAllReduce, kBytes);
  };
  EXPECT_NEAR(all_reduce(Algorithm::kDirect), 2 * kStep + 2 * part * kByte + part * kSum, 1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::kRing), 30 * kStep + 2 * part * kByte + part * kSum, 1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::kBidirectionalRing),
              16 * kStep + 2 * part * kByte + part * kSum, 1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::kHalvingDoubling), 8 * kStep + 2 * part * kByte + part * kSum,
              1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::kDoubleTree), 8 * kStep + 2 * n * kByte + n * kSum, 1e-12);
  EXPECT_NEAR(all_reduce(Algorithm::kParameterServer), 2 * kStep + 30 * n * kByte + 15 * n * kSum,
              1e-12);
  for (const Algorithm algorithm :
       {Algorithm::kDirect, Algorithm::kRing, Algorithm::kHalvingDoubling}) {
    SCOPED_TRACE(std::string(Name(algorithm)));
    const double scatter = Seconds(topology, algorithm, CollectiveKind::kReduceScatter, kBytes);
    const double gather = Seconds(topology, algorithm, CollectiveKind::kAllGather, kBytes);
    EXPECT_NEAR(scatter + gather, all_reduce(algorithm), 1e-12);
    EXPECT_NEAR(scatter - gather, part * kSum, 1e-12);
  }
  // Four nodes of four with a port for each rank.
  topology = Nodes({4, 4, 4, 4}, 4);
  topology.reduced_bytes_per_s = 1 / kSum;
  EXPECT_NEAR(all_reduce(Algorithm::kHierarchical),
              2 * kStep + 1.5 * n * kByte + 2 * 20e-6 + 1.5 * n / 4 * 1e-10 +
                  (0.75 * n + 0.75 * n / 4) * kSum,
              1e-12);
  EXPECT_NEAR(
      all_reduce(Algorithm::kDoubleTree),
      2 * kStep + 1.5 * n * kByte + 4 * 20e-6 + 2 * n / 4 * 1e-10 + (0.75 * n + n / 4) * kSum,
      1e-12);
}

TEST(CostModelTest, LetsBothLevelsSendAtTheSameTime) {
  Topology topology = Nodes({2, 2});
  const double steps = 3 * 3e-6 + 3 * 20e-6;  // of six hops every other leaves the node
  const auto seconds = [&] {
    return Seconds(topology, Algorithm::kRing, CollectiveKind::kAllReduce, 1000);
  };
  EXPECT_NEAR(seconds(), steps + 1500 / topology.between.bytes_per_s, 1e-12);
  topology.inside.bytes_per_s = 1e9;
  EXPECT_NEAR(seconds(), steps + 1500 / topology.inside.bytes_per_s, 1e-12);
}

// Two nodes of two behind one port each: 1.5 n of a ring that knows of nodes, n of a hierarchy.
TEST(CostModelTest, CountsWhatCrossesTheLinkOfAHost) {
  const Topology topology = Nodes({2, 2});
  const auto crossing = [&](Algorithm algorithm) {
    const auto phases = PhasesOf(topology, algorithm, CollectiveKind::kAllReduce, 1000);
    double bytes = 0;
    for (const Phase& phase : *phases) bytes += phase.between.bytes;
    return bytes;
  };
  EXPECT_DOUBLE_EQ(crossing(Algorithm::kRing), 1500);
  EXPECT_DOUBLE_EQ(crossing(Algorithm::kHierarchical), 1000);
}

TEST(CostModelTest, LetsTheMessagesOfARankQueue) {
  Topology topology = Nodes({1, 1, 1, 1});
  topology.message_s = 5e-6;
  const double without = 2 * (20e-6 + 750 / 10e9);
  EXPECT_NEAR(Seconds(topology, Algorithm::kDirect, CollectiveKind::kAllReduce, 1000),
              without + 4 * 5e-6, 1e-12);
  // Of eight ranks halves are four, two and one blocks.
  topology = Nodes({8});
  const double alone =
      Seconds(topology, Algorithm::kHalvingDoubling, CollectiveKind::kAllGather, 1024);
  topology.message_s = 5e-6;
  EXPECT_NEAR(Seconds(topology, Algorithm::kHalvingDoubling, CollectiveKind::kAllGather, 1024),
              alone + (3 + 1) * 5e-6, 1e-12);
}

TEST(CostModelTest, CountsTheCall) {
  Topology topology = Nodes({2, 2});
  for (const Algorithm algorithm : kModelledAlgorithms) {
    topology.call_s = 0;
    const double before = Seconds(topology, algorithm, CollectiveKind::kAllReduce, 1000);
    topology.call_s = 1e-3;
    EXPECT_NEAR(Seconds(topology, algorithm, CollectiveKind::kAllReduce, 1000) - before, 1e-3,
                1e-12);
  }
}

TEST(CostModelTest, CostsNothingAlone) {
  for (const Algorithm algorithm : kModelledAlgorithms) {
    EXPECT_EQ(Seconds(Nodes({1}), algorithm, CollectiveKind::kAllReduce, 1000), 0);
  }
  EXPECT_EQ(BusBandwidth(CollectiveKind::kAllReduce, 1, 1000, 0), 0);
}

TEST(CostModelTest, IsReadyForAMillionRanks) {
  const Topology topology = Nodes({kMaxModelledRanks / 2, kMaxModelledRanks / 2});
  for (const Algorithm algorithm : kModelledAlgorithms) {
    const double seconds =
        Seconds(topology, algorithm, CollectiveKind::kAllReduce, int64_t{1} << 40);
    EXPECT_TRUE(std::isfinite(seconds) && seconds > 100) << std::string(Name(algorithm));
  }
}

TEST(CostModelTest, DefinesBusBandwidthAsNcclTestsDoes) {
  EXPECT_DOUBLE_EQ(BusBandwidth(CollectiveKind::kAllReduce, 4, 1000, 2), 750);
  EXPECT_DOUBLE_EQ(BusBandwidth(CollectiveKind::kReduceScatter, 4, 1000, 2), 375);
  EXPECT_DOUBLE_EQ(BusBandwidth(CollectiveKind::kAllGather, 4, 1000, 2), 375);
}

TEST(CostModelTest, RefusesWhatDoesNotExist) {
  using absl::StatusCode;
  const auto refusal = [](const Topology& topology, Algorithm algorithm, CollectiveKind operation) {
    return PhasesOf(topology, algorithm, operation, 8);
  };
  const Topology uneven = Nodes({3, 1});
  EXPECT_THAT(refusal(uneven, Algorithm::kHierarchical, CollectiveKind::kAllReduce),
              StatusIs(StatusCode::kFailedPrecondition,
                       "hierarchical needs nodes of one size, they have 1 to 3 ranks"));
  EXPECT_THAT(refusal(Nodes({3, 3}), Algorithm::kHalvingDoubling, CollectiveKind::kAllReduce),
              StatusIs(StatusCode::kFailedPrecondition,
                       "halving_doubling needs a power of two, there are 6 ranks"));
  EXPECT_THAT(refusal(Nodes({2}), Algorithm::kDoubleTree, CollectiveKind::kAllGather),
              StatusIs(StatusCode::kFailedPrecondition,
                       "double_tree is for all_reduce, not for all_gather"));
  EXPECT_THAT(refusal(Nodes({2}), Algorithm::kParameterServer, CollectiveKind::kReduceScatter),
              StatusIs(StatusCode::kFailedPrecondition,
                       "parameter_server is for all_reduce, not for reduce_scatter"));
  EXPECT_THAT(refusal(Nodes({2}), Algorithm::kNative, CollectiveKind::kAllReduce),
              StatusIs(StatusCode::kInvalidArgument, "there is no cost model of native"));
  EXPECT_THAT(refusal(Nodes({2}), Algorithm::kRing, CollectiveKind::kAllToAll),
              StatusIs(StatusCode::kInvalidArgument, "there is no cost model of all_to_all"));
  EXPECT_THAT(refusal(Nodes({}), Algorithm::kRing, CollectiveKind::kAllReduce),
              StatusIs(StatusCode::kInvalidArgument, "the topology has no nodes"));
  EXPECT_THAT(PhasesOf(Nodes({2}), Algorithm::kRing, CollectiveKind::kAllReduce, -1),
              StatusIs(StatusCode::kInvalidArgument, "bytes is -1"));
}

}  // namespace
}  // namespace brigade::collectives
