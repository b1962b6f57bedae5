#include "brigade/benchmarks/parallel/layer_case.h"

#include "gtest/gtest.h"

namespace brigade::benchmarks {
namespace {

using parallel::SumPart;

// Four pieces, so that a product, a gather or a sum of 4 seconds takes 1 for each.
LayerShape Of(LayerPass pass, SumPart part) {
  return {.pass = pass, .part = part, .rows = 64, .width = 8, .ranks = 2, .pieces = 4};
}

TEST(ShortestSecondsTest, LeavesTheLastPieceOfASumBehindItsProduct) {
  for (const SumPart part : {SumPart::kAll, SumPart::kOwn}) {
    const LayerShape shape = Of(LayerPass::kRowForward, part);
    EXPECT_EQ(ShortestSeconds(shape, 4, 0, 4), 5);
    // The longer of the two decides.
    EXPECT_EQ(ShortestSeconds(shape, 4, 0, 2), 4.5);
    EXPECT_EQ(ShortestSeconds(shape, 4, 0, 8), 9);
  }
}

TEST(ShortestSecondsTest, LeavesTheFirstPieceOfAGatherBeforeItsProduct) {
  const LayerShape column = Of(LayerPass::kColumnForward, SumPart::kOwn);
  EXPECT_EQ(ShortestSeconds(column, 4, 4, 0), 5);
  EXPECT_EQ(ShortestSeconds(column, 4, 2, 0), 4.5);
  EXPECT_EQ(ShortestSeconds(column, 4, 8, 0), 9);
  // And the gradient of the weight behind it.
  const LayerShape row = Of(LayerPass::kRowBackward, SumPart::kOwn);
  EXPECT_EQ(ShortestSeconds(row, 8, 4, 0), 9);
}

TEST(ShortestSecondsTest, HidesTheSumOfAColumnBesideTheGradientOfItsWeight) {
  EXPECT_EQ(ShortestSeconds(Of(LayerPass::kColumnBackward, SumPart::kAll), 8, 0, 4), 8);
  EXPECT_EQ(ShortestSeconds(Of(LayerPass::kColumnBackward, SumPart::kAll), 8, 0, 16), 17);
  // The gather of its rows comes first on the link, and its weight's gradient waits for that.
  const LayerShape own = Of(LayerPass::kColumnBackward, SumPart::kOwn);
  EXPECT_EQ(ShortestSeconds(own, 8, 4, 4), 8);
  EXPECT_EQ(ShortestSeconds(own, 8, 6, 4), 10);
}

TEST(LayerCaseTest, ExchangesEachPieceOfWhatItsPassBeginsAndEndsWith) {
  EXPECT_EQ(LayerCase::Gathers(Of(LayerPass::kColumnForward, SumPart::kAll)).size(), 0);
  EXPECT_EQ(LayerCase::Gathers(Of(LayerPass::kRowForward, SumPart::kOwn)).size(), 0);
  const LayerShape shape = Of(LayerPass::kColumnBackward, SumPart::kOwn);
  ASSERT_EQ(LayerCase::Gathers(shape).size(), 4);
  EXPECT_EQ(LayerCase::Gathers(shape)[0].count, 16 / 2 * 8);
  ASSERT_EQ(LayerCase::Sums(shape).size(), 4);
  EXPECT_EQ(LayerCase::Sums(shape)[3].kind, collectives::CollectiveKind::kReduceScatter);
  EXPECT_EQ(LayerCase::Sums(Of(LayerPass::kRowBackward, SumPart::kOwn)).size(), 0);
  EXPECT_EQ(LayerCase::Sums(Of(LayerPass::kRowForward, SumPart::kAll))[0].count, 16 * 8);
}

}  // namespace
}  // namespace brigade::benchmarks
