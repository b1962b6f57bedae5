#include "brigade/parallel/context/zigzag.h"

#include <cstdint>
#include <vector>

#include "brigade/tests/spec/parallel.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;

TEST(ZigzagTest, EachRankHasAChunkFromTheBeginAndOneFromTheEnd) {
  for (const int ranks : {1, 2, 3, 4}) {
    const int64_t positions = 2 * ranks * 5;
    std::vector<int> owners(static_cast<size_t>(positions));
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int> chunks = spec::ZigzagChunks(ranks, rank);
      const auto runs = ZigzagRuns(positions, ranks, rank);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(runs[i].global, chunks[i] * 5);
        EXPECT_EQ(runs[i].local, static_cast<int64_t>(i) * 5);
        EXPECT_EQ(runs[i].count, 5);
        for (int64_t p = 0; p < 5; ++p) ++owners[static_cast<size_t>(runs[i].global + p)];
      }
    }
    EXPECT_EQ(owners, std::vector<int>(static_cast<size_t>(positions), 1));
  }
}

TEST(ZigzagTest, EachRankHasAsManyPairsOfAQueryAndAKeyThatItSees) {
  for (const int ranks : {2, 3, 4, 8}) {
    const int64_t positions = 2 * ranks * 3;
    std::vector<int64_t> pairs;
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t seen = 0;
      for (const PositionRun& run : ZigzagRuns(positions, ranks, rank)) {
        for (int64_t p = run.global; p < run.global + run.count; ++p) seen += p + 1;
      }
      pairs.push_back(seen);
    }
    EXPECT_EQ(pairs, std::vector<int64_t>(pairs.size(), pairs[0]));
  }
}

TEST(ZigzagTest, PositionsThatTwiceTheRanksDoNotDivideAreNamed) {
  EXPECT_OK(CheckZigzag(12, 3));
  EXPECT_THAT(CheckZigzag(9, 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "9 positions cannot be cut into two chunks for each of 3 context ranks"));
  EXPECT_THAT(CheckZigzag(0, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "0 positions cannot be cut into two chunks for each of 2 context ranks"));
}

}  // namespace
}  // namespace brigade::parallel
