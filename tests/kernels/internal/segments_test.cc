#include "brigade/kernels/internal/segments.h"

#include <memory>
#include <vector>

#include "brigade/kernels/adam/adam_math.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/update_tile.h"
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

// More than 2^31 elements through the real layout, without the memory: what each thread would
// touch.
TEST(GpuTileTest, CoversASegmentOfMoreThan2To31ElementsOnce) {
  constexpr int64_t kSize = (int64_t{1} << 31) + 4099;
  AdamSegment segment = {};
  segment.param = reinterpret_cast<float*>(4096 + 3 * sizeof(float));
  segment.m = reinterpret_cast<float*>(8192 + 3 * sizeof(float));
  segment.v = segment.m;
  segment.grad = segment.m;
  segment.size = kSize;
  const PackLayout layout = UpdateLayout<AdamPolicy, float, NoCopy>(segment);
  EXPECT_TRUE(layout.vector);
  EXPECT_EQ(layout.shift, 3);
  const int64_t tiles = GpuTiles(kSize, layout);
  EXPECT_EQ(tiles, CeilDiv(kSize + 3, kGpuTile));
  int64_t next = 0;
  // The first tiles and the last ones; in between all are alike.
  for (int64_t tile = 0; tile < tiles; ++tile) {
    if (tile == 3) {
      tile = tiles - 3;
      next = tile * kGpuTile - layout.shift;
    }
    for (int thread = 0; thread < kTileThreads; ++thread) {
      ForThread(
          kSize, layout, tile, thread,
          [&](int64_t first) {
            ASSERT_EQ(first, next);
            ASSERT_EQ((first + layout.shift) % kPackSize, 0);
            next += kPackSize;
          },
          [&](int64_t i) {
            ASSERT_EQ(i, next);
            ++next;
          });
    }
  }
  EXPECT_EQ(next, kSize);
}

TEST(GpuTileTest, CostsAnOddAddressOnlyItsEdges) {
  for (int64_t shift = 0; shift < 4; ++shift) {
    const PackLayout layout = {shift, true};
    constexpr int64_t kSize = 10001;
    int64_t singles = 0;
    int64_t packs = 0;
    for (int64_t tile = 0; tile < GpuTiles(kSize, layout); ++tile) {
      for (int thread = 0; thread < kTileThreads; ++thread) {
        ForThread(
            kSize, layout, tile, thread, [&](int64_t) { ++packs; }, [&](int64_t) { ++singles; });
      }
    }
    EXPECT_EQ(packs * kPackSize + singles, kSize);
    EXPECT_LT(singles, 2 * kPackSize);
  }
}

TEST(GpuTileTest, TakesSingleElementsOnlyWhereArraysDisagree) {
  const auto at = [](uintptr_t address) { return reinterpret_cast<const float*>(address); };
  const auto half_at = [](uintptr_t address) {
    return reinterpret_cast<const precision::Half*>(address);
  };
  PackLayoutBuilder agree;
  agree.Add(at(1024 + 4));
  agree.Add(half_at(2048 + 10));  // 5 elements past: 5 mod 4 is the floats' 1
  EXPECT_TRUE(agree.Build().vector);
  EXPECT_EQ(agree.Build().shift, 5);
  PackLayoutBuilder disagree;
  disagree.Add(at(1024 + 4));
  disagree.Add(at(1024 + 8));
  EXPECT_FALSE(disagree.Build().vector);
  PackLayoutBuilder halves;
  halves.Add(at(1024));
  halves.Add(half_at(2048 + 2));
  EXPECT_FALSE(halves.Build().vector);
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
