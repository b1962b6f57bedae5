#include "brigade/collectives/measurement/measure.h"

#include <vector>

#include "brigade/tests/collectives/measurement/measured_topology.h"
#include "brigade/tests/collectives/ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using ::brigade::testing::StatusIs;

TEST(MeasureTopologyTest, AllRanksGetTheSameSaneFigures) {
  const struct {
    std::vector<int64_t> nodes;
    std::vector<int> ranks_of_node;
  } groups[] = {{{0, 0, 1, 1}, {2, 2}},
                {{7, 7, 7, -3, 9, 9}, {3, 1, 2}},
                {{5, 5, 5}, {3}},
                {{2, 1, 0}, {1, 1, 1}},
                {{4}, {1}}};
  for (const auto& group : groups) {
    OnThreads({.size = static_cast<int>(group.nodes.size())},
              [&](Rank& self) { ExpectMeasuredTopology(self, group.nodes, group.ranks_of_node); });
  }
}

TEST(MeasureTopologyTest, RanksThatAreNotNumberedNodeByNodeAreRefusedOnAll) {
  OnThreads({.size = 3}, [](Rank& self) {
    EXPECT_THAT(
        MeasureTopology(*self.communicator, self.rank % 2, *self.context, *self.stream),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 "rank 2 is on the node of rank 0, and rank 1 is not: ranks are not numbered node "
                 "by node"));
    ASSERT_OK(self.communicator->Barrier(*self.stream));  // the group goes on
  });
}

TEST(MeasureTopologyTest, AnErrorOfTheGroupIsEverybodys) {
  OnThreads({.size = 4}, [](Rank& self) {
    ASSERT_OK(self.communicator->AllGatherHost({0}));  // all are there
    if (self.rank == 2) self.communicator->Abort(absl::DataLossError("rank 2 is full"));
    EXPECT_THAT(MeasureTopology(*self.communicator, self.rank / 2, *self.context, *self.stream),
                StatusIs(absl::StatusCode::kDataLoss, "rank 2 is full"));
  });
}

}  // namespace
}  // namespace brigade::collectives
