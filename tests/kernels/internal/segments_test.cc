#include "brigade/kernels/internal/segments.h"

#include <memory>
#include <vector>

#include "brigade/kernels/adam/adam_math.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

struct Piece {
  int64_t size;
  int64_t id;
};
using SmallBatch = SegmentBatch<Piece, 4>;

int64_t TilesOf(const Piece& piece) { return CeilDiv(piece.size, int64_t{10}); }

struct Launched {
  int64_t tiles_before;
  std::vector<int64_t> ids;
  int64_t tiles;
};

std::vector<Launched> Plan(const std::vector<int64_t>& sizes, int64_t max_tiles) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < sizes.size(); ++i) pieces.push_back({sizes[i], static_cast<int64_t>(i)});
  std::vector<Launched> launches;
  auto batch = std::make_unique<SmallBatch>();
  const bool ok = ForEachBatch(
      pieces.data(), pieces.size(), max_tiles, TilesOf, *batch, true, [&](int64_t tiles_before) {
        Launched launched{tiles_before, {}, batch->tiles()};
        for (int i = 0; i < batch->count; ++i) {
          launched.ids.push_back(batch->segments[i].id);
          // Each tile finds its own segment.
          for (int64_t t : {batch->first_tile[i], batch->first_tile[i + 1] - 1}) {
            EXPECT_EQ(batch->Find(t), i);
          }
        }
        launches.push_back(launched);
        return true;
      });
  EXPECT_TRUE(ok);
  return launches;
}

TEST(SegmentsTest, LeavesOutEmptySegmentsWhereverTheyAre) {
  const auto launches = Plan({0, 0, 11, 0, 10, 0, 0}, 1000);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].ids, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(launches[0].tiles, 3);
  EXPECT_TRUE(Plan({}, 1000).empty());
  EXPECT_TRUE(Plan({0, 0, 0, 0, 0, 0}, 1000).empty());
}

TEST(SegmentsTest, CutsAListAtTheCapacityOfALaunch) {
  const auto launches = Plan({5, 5, 0, 5, 5, 25, 0, 5, 0}, 1000);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].ids, (std::vector<int64_t>{0, 1, 3, 4}));
  EXPECT_EQ(launches[1].ids, (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(launches[1].tiles_before, 4);
  EXPECT_EQ(launches[1].tiles, 4);
}

TEST(SegmentsTest, CutsAListAtTheLargestGrid) {
  const auto launches = Plan({30, 30, 30}, 6);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].ids, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(launches[1].ids, (std::vector<int64_t>{2}));
  EXPECT_EQ(launches[1].tiles_before, 6);
}

TEST(SegmentsTest, CountsPast32Bits) {
  constexpr int64_t kHuge = (int64_t{1} << 33) + 12345;  // elements, in one segment
  const auto launches = Plan({kHuge, 7, kHuge}, int64_t{1} << 40);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].tiles, 2 * CeilDiv(kHuge, int64_t{10}) + 1);
}

TEST(SegmentsTest, StopsAtTheFirstLaunchThatFails) {
  const std::vector<Piece> pieces(10, Piece{5, 0});
  auto batch = std::make_unique<SmallBatch>();
  int launches = 0;
  EXPECT_EQ(ForEachBatch(pieces.data(), pieces.size(), 1000, TilesOf, *batch, 0,
                         [&](int64_t) { return ++launches == 2 ? 42 : 0; }),
            42);
  EXPECT_EQ(launches, 2);
}

TEST(SegmentsTest, PassesAShortListInSmallArguments) {
  const auto capacity = [](int64_t count) {
    return WithCapacity<1000>(count, [](auto constant) { return int{constant}; });
  };
  EXPECT_EQ(capacity(0), kFewSegments);
  EXPECT_EQ(capacity(kFewSegments), kFewSegments);
  EXPECT_EQ(capacity(kFewSegments + 1), 1000);
  EXPECT_LT(sizeof(UpdateArguments<AdamPolicy, kFewSegments>), 4096u);
}

TEST(CpuListTest, GivesEveryElementToExactlyOneRange) {
  for (const int threads : {1, 2, 5}) {
    device::ThreadPool pool(threads);
    const std::vector<Piece> pieces = {{0, 0}, {1, 1}, {4096, 2}, {0, 3}, {1000001, 4}, {4097, 5}};
    const auto plan = PlanSegments<Piece>(pieces, kCpuTile);
    std::vector<std::vector<char>> seen;
    for (const Piece& piece : pieces) seen.emplace_back(piece.size, 0);
    ForEachRange(plan, kCpuTile, pool,
                 [&](const Piece& piece, int64_t begin, int64_t end, int64_t) {
                   for (int64_t i = begin; i < end; ++i) ++seen[piece.id][i];
                 });
    for (const auto& elements : seen) {
      for (const char count : elements) ASSERT_EQ(count, 1);
    }
  }
}

}  // namespace
}  // namespace brigade::kernels
