#include "brigade/collectives/hierarchical/hierarchical.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "brigade/collectives/tuning/cost_model.h"
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

// The node of each rank. Numbered node by node, dealt out in turn, with numbers of the user's; one rank a node, one node.
const std::vector<std::vector<int64_t>> kGroups = {
    {0, 0, 1, 1}, {0, 1, 0, 1, 0, 1}, {7, -7, -7, 9, 9, 7}, {3, 2, 1}, {5, 5, 5}};

TEST(HierarchicalTest, EveryCallIsThatOfTheWorldWithSlices) {
  for (const auto& node : kGroups) {
    for (const Algorithm between : {Algorithm::kDirect, Algorithm::kHalvingDoubling}) {
      device::RaceChecker checker;
      const RanksOptions options = {.size = static_cast<int>(node.size()),
                                    .race_checker = &checker};
      ConformHierarchical(options, ThreadEngines(options), node, {Algorithm::kRing, between},
                          {0, 1, 63, 64 * 6, 64 * 6 * 3 + 17});
      EXPECT_THAT(checker.reports(), IsEmpty());
    }
  }
}

int64_t SentBytes(Communicator& group) {
  int64_t bytes = 0;
  for (int to = 0; to < group.size(); ++to) bytes += group.sent_bytes(to);
  return bytes;
}

TEST(HierarchicalTest, SendsWhatTheFormulasSay) {
  constexpr int kInside = 2, kNodes = 3, kSize = kInside * kNodes;
  OnThreads({.size = kSize}, [&](Rank& self) {
    auto created = Hierarchical::Create(*self.communicator, self.rank / kInside, {}, *self.context);
    ASSERT_OK(created);
    Hierarchical& two_levels = **created;
    constexpr int64_t kCount = 64 * kInside * kNodes;
    std::vector<float> small(kCount), large(kCount * kSize);
    const auto sent = [](Communicator& group) { return SentBytes(group) / 4; };
    int64_t inside = sent(two_levels.inside()), between = sent(two_levels.between());
    const auto expect = [&](int64_t by_inside, int64_t by_between) {
      // Counted by who comes last.
      ASSERT_OK(self.communicator->Barrier(*self.stream));
      EXPECT_EQ(sent(two_levels.inside()) - inside, by_inside);
      EXPECT_EQ(sent(two_levels.between()) - between, by_between);
      inside += by_inside;
      between += by_between;
      ASSERT_OK(self.communicator->Barrier(*self.stream));
    };
    ASSERT_OK(two_levels.AllReduce(small.data(), small.data(), kCount, {}, *self.stream));
    expect(2 * (kInside - 1) * kCount / kInside, 2 * (kNodes - 1) * kCount / kInside / kNodes);
    ASSERT_OK(two_levels.ReduceScatter(large.data(), small.data(), kCount, {}, *self.stream));
    expect((kInside - 1) * kNodes * kCount, (kNodes - 1) * kCount);
    ASSERT_OK(two_levels.AllGather(small.data(), large.data(), kCount, {}, *self.stream));
    expect((kInside - 1) * kNodes * kCount, (kNodes - 1) * kCount);
    ASSERT_OK(self.stream->Synchronize());
  });
}

TEST(HierarchicalTest, SendsWhatTheModelSaysByRingsAndDirectly) {
  Topology topology;
  topology.inside = topology.between = {1e-6, 1e9};
  for (const auto& [inside, nodes] : {std::pair(2, 2), std::pair(3, 2), std::pair(2, 3)}) {
    topology.ranks_of_node = RanksOfNodes(inside * nodes, inside);
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect}) {
      OnThreads({.size = inside * nodes}, [&](Rank& self) {
        auto two_levels = Hierarchical::Create(*self.communicator, self.rank / inside,
                                               {algorithm, algorithm}, *self.context);
        ASSERT_OK(two_levels);
        const int64_t part = 64 * inside * nodes, all = part * self.size;
        std::vector<float> small(part), large(all);
        int64_t inside_before = 0, between_before = 0;
        const auto expect = [&](CollectiveKind operation, const absl::Status& status) {
          ASSERT_OK(status);
          // Counted by who comes last.
          ASSERT_OK(self.communicator->Barrier(*self.stream));
          const auto phases = PhasesOf(topology, Route::kHierarchical, operation, 4 * all);
          ASSERT_OK(phases);
          double by_rank = 0, by_node = 0;
          for (const Phase& phase : *phases) {
            by_rank += phase.inside.bytes;
            by_node += phase.between.bytes;
          }
          const int64_t inside_now = SentBytes((*two_levels)->inside());
          const int64_t between_now = SentBytes((*two_levels)->between());
          EXPECT_DOUBLE_EQ(by_rank, inside_now - inside_before);
          EXPECT_DOUBLE_EQ(by_node, inside * (between_now - between_before));
          inside_before = inside_now;
          between_before = between_now;
          ASSERT_OK(self.communicator->Barrier(*self.stream));
        };
        expect(CollectiveKind::kAllReduce,
               (*two_levels)->AllReduce(large.data(), large.data(), all, {}, *self.stream));
        expect(CollectiveKind::kReduceScatter,
               (*two_levels)->ReduceScatter(large.data(), small.data(), part, {}, *self.stream));
        expect(CollectiveKind::kAllGather,
               (*two_levels)->AllGather(small.data(), large.data(), part, {}, *self.stream));
        ASSERT_OK(self.stream->Synchronize());
      });
    }
  }
}

TEST(HierarchicalTest, SlicesAreThoseOfPlacesInTheNode) {
  OnThreads({.size = 6}, [](Rank& self) {
    constexpr int64_t kNodes[] = {7, -7, -7, 9, 9, 7};
    auto two_levels =
        Hierarchical::Create(*self.communicator, kNodes[self.rank], {}, *self.context);
    ASSERT_OK(two_levels);
    std::vector<int> slices;
    for (int rank = 0; rank < 6; ++rank) slices.push_back((*two_levels)->slice_of_rank(rank));
    EXPECT_THAT(slices, ::testing::ElementsAre(0, 1, 4, 2, 5, 3));
  });
}

TEST(HierarchicalTest, NodesOfDifferentSizesAreRefusedOnAllRanks) {
  OnThreads({.size = 4}, [](Rank& self) {
    EXPECT_THAT(Hierarchical::Create(*self.communicator, self.rank == 0 ? 0 : 1, {}, *self.context),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "nodes of one size are needed: that of rank 0 has 1 ranks, that of rank 1 "
                         "has 3"));
    ASSERT_OK(self.communicator->Barrier(*self.stream));  // the world goes on
  });
}

TEST(HierarchicalTest, OrdersItsCallsAcrossStreams) {
  device::RaceChecker checker;
  const RanksOptions options = {
      .size = 4, .random_delay = {.seed = 5, .max_delay_us = 300}, .race_checker = &checker};
  OnThreads(options, [](Rank& self) {
    auto other = self.context->CreateStream("other").value();
    auto two_levels = Hierarchical::Create(*self.communicator, self.rank / 2, {}, *self.context);
    ASSERT_OK(two_levels);
    constexpr int64_t kCount = 50;
    std::vector<float> input(4 * kCount, 1.0f), output(kCount);
    for (int i = 0; i < 20; ++i) {
      ASSERT_OK((*two_levels)
                    ->ReduceScatter(input.data(), output.data(), kCount, {},
                                    i % 2 == 0 ? *self.stream : *other));
    }
    ASSERT_OK(self.stream->Synchronize());
    ASSERT_OK(other->Synchronize());
    EXPECT_EQ(output, std::vector<float>(kCount, 4.0f));
  });
  EXPECT_THAT(checker.reports(), IsEmpty());
}

TEST(HierarchicalTest, BadArgumentsAreNamedAndNothingHappens) {
  OnThreads({.size = 4}, [](Rank& self) {
    auto two_levels = Hierarchical::Create(*self.communicator, self.rank / 2, {}, *self.context);
    ASSERT_OK(two_levels);
    std::vector<float> a(512, 1.0f), b(512);
    const auto invalid = [](const char* text) {
      return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
    };
    EXPECT_THAT((*two_levels)->AllReduce(nullptr, b.data(), 512, {}, *self.stream),
                invalid("all_reduce: input is null with 512 elements"));
    EXPECT_THAT((*two_levels)->AllReduce(a.data(), a.data() + 4, 500, {}, *self.stream),
                invalid("overlap"));
    EXPECT_THAT((*two_levels)->ReduceScatter(a.data(), b.data(), -1, {}, *self.stream),
                invalid("count is -1"));
    // In place is the slice's place, not the rank's.
    const int wrong = 3 - (*two_levels)->slice_of_rank(self.rank);
    EXPECT_THAT((*two_levels)->AllGather(b.data() + wrong * 8, b.data(), 8, {}, *self.stream),
                invalid("overlap in 32 bytes"));
    ASSERT_OK((*two_levels)->AllReduce(a.data(), b.data(), 512, {}, *self.stream));
    ASSERT_OK(self.stream->Synchronize());
    EXPECT_EQ(b, std::vector<float>(512, 4.0f));
  });
}

// Rank 3 ends the communicator of its node; rank 0 shares none with it, and hears of it by rank 2 or 1.
TEST(HierarchicalTest, AnErrorOfOneLevelReachesAllRanks) {
  OnThreads({.size = 4}, [](Rank& self) {
    auto two_levels = Hierarchical::Create(*self.communicator, self.rank / 2, {}, *self.context);
    ASSERT_OK(two_levels);
    if (self.rank == 3) (*two_levels)->inside().Abort(absl::DataLossError("rank 3 is full"));
    std::vector<float> a(512, 1.0f);
    absl::Status status;
    while (status.ok()) {
      status = (*two_levels)->AllReduce(a.data(), a.data(), 512, {}, *self.stream);
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "rank 3 is full"));
    EXPECT_OK(self.stream->Synchronize());
  });
}

}  // namespace
}  // namespace brigade::collectives
