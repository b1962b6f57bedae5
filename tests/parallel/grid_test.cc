#include "brigade/parallel/grid.h"

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "gmock/gmock.h"

namespace brigade::parallel {
namespace {

using ::brigade::collectives::OnThreads;
using ::brigade::collectives::Rank;
using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::set<std::vector<int>> AllGroups(const GridShape& shape, GridGroup group) {
  std::set<std::vector<int>> groups;
  for (int rank = 0; rank < shape.ranks(); ++rank) groups.insert(RanksOf(shape, group, rank));
  return groups;
}

using Groups = std::set<std::vector<int>>;

TEST(GridTest, TensorRanksAreNeighboursThenContextDataAndPipeline) {
  const GridShape eight = {.tensor = 2, .data = 2, .pipeline = 2};
  EXPECT_EQ(AllGroups(eight, GridGroup::kTensor), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(AllGroups(eight, GridGroup::kData), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(AllGroups(eight, GridGroup::kReplica), AllGroups(eight, GridGroup::kData));
  EXPECT_EQ(AllGroups(eight, GridGroup::kPipeline), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(AllGroups(eight, GridGroup::kTied), AllGroups(eight, GridGroup::kPipeline));
  EXPECT_EQ(AllGroups(eight, GridGroup::kModel), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(CoordinatesOf(eight, 5), (Coordinates{.tensor = 1, .data = 0, .pipeline = 1}));

  const GridShape context = {.tensor = 2, .context = 2, .pipeline = 2};
  EXPECT_EQ(AllGroups(context, GridGroup::kContext), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(AllGroups(context, GridGroup::kReplica), AllGroups(context, GridGroup::kContext));
  EXPECT_EQ(AllGroups(context, GridGroup::kData), (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));

  const GridShape sixteen = {.tensor = 2, .data = 4, .pipeline = 2};
  EXPECT_EQ(AllGroups(sixteen, GridGroup::kData),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(AllGroups(sixteen, GridGroup::kModel),
            (Groups{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
  EXPECT_EQ(CoordinatesOf(sixteen, 13), (Coordinates{.tensor = 1, .data = 2, .pipeline = 1}));

  const GridShape both = {.tensor = 1, .context = 2, .data = 2, .pipeline = 3};
  EXPECT_EQ(AllGroups(both, GridGroup::kReplica),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}}));
  EXPECT_THAT(RanksOf(both, GridGroup::kTied, 1), ElementsAre(1, 9));
  EXPECT_THAT(RanksOf(both, GridGroup::kTied, 5), IsEmpty());
  EXPECT_THAT(RanksOf({.data = 2}, GridGroup::kTied, 1), IsEmpty());
}

TEST(GridTest, CoordinatesAndRanksAreInverse) {
  const GridShape shape = {.tensor = 2, .context = 3, .data = 4, .pipeline = 5};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    EXPECT_EQ(RankOf(shape, CoordinatesOf(shape, rank)), rank);
    for (const GridGroup group : kGridGroups) {
      if (group == GridGroup::kTied) continue;
      const std::vector<int> ranks = RanksOf(shape, group, rank);
      EXPECT_THAT(ranks, ::testing::Contains(rank)) << Name(group);
      for (const int other : ranks) EXPECT_EQ(RanksOf(shape, group, other), ranks) << Name(group);
    }
  }
}

TEST(GridTest, AShapeThatDoesNotFitIsNamedWithItsArithmetic) {
  EXPECT_OK(Validate({.tensor = 2, .data = 4}, 8));
  EXPECT_THAT(Validate({.tensor = 2, .context = 1, .data = 3, .pipeline = 2}, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "grid: tensor 2 x context 1 x data 3 x pipeline 2 = 12 ranks, but there "
                       "are 8"));
  EXPECT_THAT(Validate({.context = 0}, 8), StatusIs(absl::StatusCode::kInvalidArgument,
                                                    "grid: context is 0; it must be 1 to 32768"));
  EXPECT_THAT(Validate({32768, 32768, 32768, 32768}, 8),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("= 1152921504606846976 ")));
  EXPECT_THAT(Validate({.tensor = 1 << 16}, 1 << 16),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor is 65536")));
}

// Each group's sum is that of its ranks.
TEST(GridTest, EveryGroupExchangesBetweenItsRanks) {
  for (const GridShape& shape : {GridShape{},
                                 {.tensor = 4, .data = 2},
                                 {.tensor = 2, .context = 2, .data = 2},
                                 {.context = 2, .data = 2, .pipeline = 2},
                                 {.tensor = 2, .pipeline = 3}}) {
    SCOPED_TRACE(ToString(shape));
    OnThreads({.size = static_cast<int>(shape.ranks())}, [&](Rank& self) {
      auto grid = Grid::Create(shape, *self.communicator);
      ASSERT_OK(grid);
      EXPECT_EQ((*grid)->coordinates(), CoordinatesOf(shape, self.rank));
      EXPECT_EQ((*grid)->rank(), self.rank);
      const std::vector<float> mine = {static_cast<float>(self.rank)};
      for (const GridGroup group : kGridGroups) {
        const std::vector<int> ranks = RanksOf(shape, group, self.rank);
        collectives::Communicator* const communicator = (*grid)->group(group);
        if (ranks.empty()) {
          EXPECT_EQ(communicator, nullptr) << Name(group);
          continue;
        }
        std::vector<float> sum(1);
        ASSERT_OK(communicator->AllReduce(mine, absl::MakeSpan(sum), {}, *self.stream));
        ASSERT_OK(communicator->Synchronize(*self.stream));
        EXPECT_EQ(sum[0], std::accumulate(ranks.begin(), ranks.end(), 0)) << Name(group);
        EXPECT_EQ(ranks[static_cast<size_t>(communicator->rank())], self.rank) << Name(group);
      }
      EXPECT_OK((*grid)->status());
      self.AwaitOthers();
    });
  }
}

TEST(GridTest, RanksThatDisagreeGetOneError) {
  OnThreads({.size = 4}, [](Rank& self) {
    const GridShape odd = {.data = 4}, usual = {.tensor = 2, .data = 2};
    EXPECT_THAT(Grid::Create(self.rank == 2 ? odd : usual, *self.communicator),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "grid: rank 0 has tensor 2 x context 1 x data 2 x pipeline 1, but rank 2 "
                         "has tensor 1 x context 1 x data 4 x pipeline 1"));
    EXPECT_THAT(Grid::Create({.tensor = 3}, *self.communicator),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("= 3 ranks")));
    EXPECT_OK(Grid::Create(usual, *self.communicator));
    self.AwaitOthers();
  });
}

// Rank 5 fails by itself. Its neighbours learn it in their groups with it and pass it on, until it
// has reached the ranks that wait for none of its groups.
TEST(GridTest, AnAbortReachesEveryRankWithTheCulpritsCoordinates) {
  const GridShape shape = {.tensor = 2, .data = 2, .pipeline = 2};
  OnThreads({.size = 8}, [&](Rank& self) {
    // Unfinished calls of other ranks may read them.
    std::vector<float> one = {1.0f}, sum(1);
    auto grid = Grid::Create(shape, *self.communicator).value();
    self.AwaitOthers();
    absl::Status error;
    if (self.rank == 5) {
      error = grid->Abort(absl::DataLossError("the disk is gone"));
    } else {
      while (error.ok()) {
        for (const GridGroup group :
             {GridGroup::kTensor, GridGroup::kReplica, GridGroup::kPipeline}) {
          collectives::Communicator& ranks = *grid->group(group);
          error = ranks.AllReduce(one, absl::MakeSpan(sum), {}, *self.stream);
          if (!error.ok()) break;
        }
      }
      error = grid->Abort(error);
    }
    EXPECT_THAT(error, StatusIs(absl::StatusCode::kDataLoss,
                                "grid of tensor 2 x context 1 x data 2 x pipeline 2, rank 5 at "
                                "tensor 1, context 0, data 0, pipeline 1: the disk is gone"));
    EXPECT_EQ(grid->status(), error);
    // The stream may be at work for a call that was enqueued.
    EXPECT_OK(self.stream->Synchronize());
    self.AwaitOthers();
  });
}

// Rank 3 is gone: its neighbours name the group in which they notice it, and its ranks.
TEST(GridTest, ARankThatIsGoneIsNamedInItsGroup) {
  OnThreads({.size = 4}, [](Rank& self) {
    std::vector<float> one = {1.0f}, sum(1);
    auto grid = Grid::Create({.tensor = 2, .data = 2}, *self.communicator).value();
    self.AwaitOthers();
    if (self.rank == 3) {
      grid.reset();
      self.AwaitOthers();
      return;
    }
    absl::Status error;
    if (self.rank == 2) {
      error = grid->tensor().AllReduce(one, absl::MakeSpan(sum), {}, *self.stream);
      EXPECT_THAT(grid->Abort(error),
                  StatusIs(absl::StatusCode::kUnavailable,
                           AllOf(HasSubstr("tensor group of ranks 2, 3 (0 to 1 in it) at "
                                           "tensor 0 to 1, context 0, data 1, pipeline 0, on "
                                           "rank 2: "),
                                 HasSubstr("rank 1 has left the group"))));
    } else if (self.rank == 0) {
      // In a group with rank 2, which passes it on.
      error = grid->replica().AllReduce(one, absl::MakeSpan(sum), {}, *self.stream);
      EXPECT_THAT(grid->Abort(error), StatusIs(absl::StatusCode::kUnavailable,
                                               HasSubstr("tensor group of ranks 2, 3")));
    } else {
      // In a group with rank 0.
      error = grid->tensor().AllReduce(one, absl::MakeSpan(sum), {}, *self.stream);
      EXPECT_THAT(grid->Abort(error), StatusIs(absl::StatusCode::kUnavailable,
                                               HasSubstr("tensor group of ranks 2, 3")));
    }
    self.AwaitOthers();
  });
}

TEST(GridTest, PartsOfAGroupAreOfTheRanksThatGiveAColorAndEndWithTheGrid) {
  OnThreads({.size = 6}, [](Rank& self) {
    auto grid = Grid::Create({.data = 2, .pipeline = 3}, *self.communicator).value();
    const int stage = grid->coordinates().pipeline;
    // The last two stages.
    auto* const pair = grid->Split(GridGroup::kPipeline, stage == 0 ? -1 : 4).value();
    ASSERT_EQ(pair == nullptr, stage == 0);
    // All of them, beside the group's own communicator.
    auto* const all = grid->Split(GridGroup::kPipeline, 0).value();
    EXPECT_NE(all, &grid->pipeline());
    EXPECT_EQ(all->size(), 3);
    EXPECT_EQ(all->rank(), stage);
    if (pair != nullptr) {
      float mine = static_cast<float>(self.rank), its = -1;
      ASSERT_OK(pair->rank() == 0 ? pair->Send(&mine, 1, collectives::kFloat32, 1, *self.stream)
                                  : pair->Receive(&its, 1, collectives::kFloat32, 0, *self.stream));
      ASSERT_OK(self.stream->Synchronize());
      EXPECT_EQ(its, pair->rank() == 1 ? mine - 2 : -1);
    }
    if (stage == 1) {
      EXPECT_THAT(grid->Split(GridGroup::kTied, 0),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is in no tied group")));
    }
    self.AwaitOthers();
    // An error of a part is told with its ranks, and ends all groups.
    if (self.rank == 5) {
      pair->Abort(absl::DataLossError("the pair broke"));
      EXPECT_THAT(grid->Abort(pair->status()),
                  StatusIs(absl::StatusCode::kDataLoss,
                           AllOf(HasSubstr("pipeline group of ranks 3, 5 (0 to 1 in it)"),
                                 HasSubstr("pipeline 1 to 2, on rank 5: the pair broke"))));
    }
    self.AwaitOthers();
    EXPECT_EQ(grid->status().code(), absl::StatusCode::kDataLoss) << self.rank;
    // Rank 5's replica is ranks 1, 3, 5.
    EXPECT_EQ(all->status().ok(), self.rank % 2 == 0);
  });
}

}  // namespace
}  // namespace brigade::parallel
