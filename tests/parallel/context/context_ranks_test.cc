#include "brigade/parallel/context/context_ranks.h"

#include <cstdint>
#include <vector>

#include "brigade/device/threads/mutex.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;

TEST(ContextRanksTest, OneAloneHasAllPositions) {
  for (const ContextExchange exchange : {ContextExchange::kUlysses, ContextExchange::kRing}) {
    const ContextRanks alone = {.exchange = exchange};
    EXPECT_EQ(alone.size(), 1);
    EXPECT_FALSE(alone.share() || alone.is_ring() || alone.exchanges_heads());
    EXPECT_OK(alone.Check(7));
    const auto runs = alone.RunsOf(7);
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0].global, 0);
    EXPECT_EQ(runs[0].count, 7);
  }
}

TEST(ContextRanksTest, EachPositionIsOfOneRank) {
  for (const ContextExchange exchange : {ContextExchange::kUlysses, ContextExchange::kRing}) {
    const bool is_ring = exchange == ContextExchange::kRing;
    constexpr int64_t kPositions = 24;
    device::Mutex mutex;
    std::vector<int> owners(kPositions, -1);
    collectives::OnThreads({.size = 3}, [&](collectives::Rank& self) {
      const ContextRanks ranks = {self.communicator.get(), exchange};
      EXPECT_EQ(ranks.size(), 3);
      EXPECT_EQ(ranks.is_ring(), is_ring);
      EXPECT_EQ(ranks.exchanges_heads(), !is_ring);
      EXPECT_OK(ranks.Check(kPositions));
      EXPECT_THAT(ranks.Check(9),
                  StatusIs(is_ring ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk,
                           is_ring ? "9 positions cannot be cut into two chunks for each of 3 "
                                     "context ranks"
                                   : ""));
      EXPECT_THAT(ranks.Check(0), StatusIs(absl::StatusCode::kInvalidArgument,
                                           ::testing::HasSubstr("0 positions cannot be cut")));
      EXPECT_THAT(ranks.Check(8), StatusIs(absl::StatusCode::kInvalidArgument,
                                           ::testing::HasSubstr("8 positions cannot be cut")));
      const device::MutexLock lock(mutex);
      int64_t local = 0;
      for (const PositionRun& run : ranks.RunsOf(kPositions)) {
        EXPECT_EQ(run.local, local);
        local += run.count;
        for (int64_t i = 0; i < run.count; ++i) {
          EXPECT_EQ(owners[static_cast<size_t>(run.global + i)], -1);
          owners[static_cast<size_t>(run.global + i)] = self.rank;
        }
      }
      EXPECT_EQ(local, kPositions / 3);
    });
    std::vector<int> wanted;
    for (const int rank :
         is_ring ? std::vector<int>{0, 1, 2, 2, 1, 0} : std::vector<int>{0, 0, 1, 1, 2, 2}) {
      wanted.insert(wanted.end(), 4, rank);
    }
    EXPECT_EQ(owners, wanted);
  }
}

}  // namespace
}  // namespace brigade::parallel
