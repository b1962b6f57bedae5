#include "brigade/parallel/tensor/row_pieces.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<int64_t> RowsOf(const RowPieces& pieces) {
  std::vector<int64_t> rows;
  for (int p = 0; p < pieces.count(); ++p) {
    const RowRange own = pieces.OwnAmongAll(p);
    EXPECT_EQ(own.count, pieces.Own(p).count);
    EXPECT_EQ(pieces.Own(p).first, static_cast<int64_t>(rows.size()));
    for (int64_t r = 0; r < own.count; ++r) rows.push_back(own.first + r);
  }
  EXPECT_EQ(static_cast<int64_t>(rows.size()), pieces.own_rows());
  return rows;
}

TEST(RowPiecesTest, RanksHaveTheirPartOfEachPiece) {
  RowPieces pieces = {.rows = 8, .pieces = 2, .part = SumPart::kOwn, .shards = {2, 2, 0}};
  EXPECT_THAT(RowsOf(pieces), ElementsAre(0, 1, 4, 5));
  pieces.shards.rank = 1;
  EXPECT_THAT(RowsOf(pieces), ElementsAre(2, 3, 6, 7));
  pieces.part = SumPart::kAll;
  EXPECT_THAT(RowsOf(pieces), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// Whatever the numbers are: pieces and blocks do not depend on the ranks, and each row is one
// rank's.
TEST(RowPiecesTest, EachRowIsInOnePieceOfAnyRanks) {
  for (const int count : {1, 2, 4, 8}) {
    for (const int pieces : {1, 2, 3, 7, 256}) {
      for (const int64_t groups : {0, 1, 2, 5, 64}) {
        for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
          SCOPED_TRACE(absl::StrCat(count, " shards, ", pieces, " pieces, ", groups, " groups"));
          const RowPieces one = {groups * count, pieces, part, {count, 1, 0}};
          int64_t end = 0, largest = 0;
          for (int p = 0; p < one.count(); ++p) {
            EXPECT_EQ(one.Piece(p).first, end);
            EXPECT_EQ(one.Piece(p).count % one.unit(), 0);
            EXPECT_TRUE(one.Piece(p).count > 0 || groups == 0);
            end += one.Piece(p).count;
            largest = std::max(largest, one.Piece(p).count);
          }
          EXPECT_EQ(end, one.rows);
          EXPECT_EQ(one.largest(), largest);
          EXPECT_LE(one.count(), pieces);
          for (int ranks = 1; ranks <= count; ranks *= 2) {
            std::vector<int> owners(static_cast<size_t>(one.rows));
            for (int rank = 0; rank < ranks; ++rank) {
              const RowPieces mine = {one.rows, pieces, part, {count, ranks, rank}};
              // Uncut rows need not be those of shards.
              if (pieces > 1) {
                ASSERT_EQ(mine.count(), one.count());
              }
              for (const int64_t row : RowsOf(mine)) ++owners[static_cast<size_t>(row)];
              if (part == SumPart::kAll || pieces == 1) continue;
              for (int p = 0; p < one.count(); ++p) {
                EXPECT_EQ(mine.Piece(p).first, one.Piece(p).first);
                for (int b = 0; b < mine.shards.local(); ++b) {
                  const RowRange block = mine.Block(p, b);
                  const RowRange same = one.Block(p, mine.shards.first() + b);
                  EXPECT_EQ(block.count, same.count);
                  EXPECT_EQ(block.first - mine.Own(p).first + mine.OwnAmongAll(p).first,
                            same.first);
                }
              }
            }
            EXPECT_THAT(owners, Each(part == SumPart::kAll ? ranks : 1));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace brigade::parallel
