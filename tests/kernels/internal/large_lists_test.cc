// Plans of lists with far more than 2^31 elements and more segments than a launch takes, with empty
// ones first, last and in between. Planning only computes: there is no memory behind these lists.

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "brigade/kernels/adam/adam_math.h"
#include "brigade/kernels/cast/cast_tile.h"
#include "brigade/kernels/fill/fill_tile.h"
#include "brigade/kernels/grad_check/grad_check_tile.h"
#include "brigade/kernels/internal/cpu_list.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/internal/update_tile.h"
#include "brigade/kernels/sgd/sgd_math.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

// Two segments of 2^41 elements and more do not fit into one grid of tiles of 2048 elements.
std::vector<int64_t> LargeSizes() {
  constexpr int64_t kOne = 1;
  std::vector<int64_t> sizes = {0, 0, (kOne << 31) + 1, 0, (kOne << 33) + 12345, 7, 0};
  for (int64_t i = 0; i < 6000; ++i) sizes.push_back(i % 5 == 0 ? 0 : i * 1'000'003);
  sizes.insert(sizes.end(), 3, (kOne << 41) + 1);
  sizes.insert(sizes.end(), {2048, 0, 0});
  return sizes;
}

float* const kArray = reinterpret_cast<float*>(uintptr_t{1} << 20);

// What differs between the operations: the batch of one launch, and how many elements a tile has.
struct Adam {
  using Batch = decltype(UpdateArguments<AdamPolicy>::batch);
  static constexpr int64_t kTile = 2048;
  static AdamSegment Make(int64_t size) {
    return {kArray, kArray, kArray, kArray, nullptr, size, 0};
  }
  static int64_t Tiles(const AdamSegment& s) {
    return UpdateLayout<AdamPolicy, float, NoCopy>(s).Tiles(s.size);
  }
};
struct Sgd {
  using Batch = decltype(UpdateArguments<SgdPolicy>::batch);
  static constexpr int64_t kTile = 2048;
  static SgdSegment Make(int64_t size) { return {kArray, kArray, kArray, nullptr, size, 0}; }
  static int64_t Tiles(const SgdSegment& s) {
    return UpdateLayout<SgdPolicy, float, NoCopy>(s).Tiles(s.size);
  }
};
struct Cast {
  using Batch = decltype(CastArguments<>::batch);
  static constexpr int64_t kTile = 2048;
  static CastSegment Make(int64_t size) { return {kArray, kArray, size}; }
  static int64_t Tiles(const CastSegment& s) {
    return CastLayout<float, precision::Half>(s).Tiles(s.size);
  }
};
struct GradCheck {
  using Batch = decltype(GradArguments<>::batch);
  static constexpr int64_t kTile = 8192;
  static GradSegment Make(int64_t size) { return {kArray, size}; }
  static int64_t Tiles(const GradSegment& s) { return GradTiles(s); }
};
template <int kBytes>
struct Fill {
  using Batch = decltype(FillArguments<>::batch);
  static constexpr int64_t kTile = 16384 / kBytes;
  static FillSegment Make(int64_t size) { return {kArray, size}; }
  static int64_t Tiles(const FillSegment& s) { return FillTiles(s, kBytes); }
};

template <typename Operation>
class LargeListsTest : public ::testing::Test {};
using Operations = ::testing::Types<Adam, Sgd, Cast, GradCheck, Fill<1>, Fill<4>, Fill<8>>;
TYPED_TEST_SUITE(LargeListsTest, Operations);

TYPED_TEST(LargeListsTest, LaunchesEverySegmentOnceInGridsThatFit) {
  using Batch = typename TypeParam::Batch;
  const std::vector<int64_t> sizes = LargeSizes();
  std::vector<decltype(TypeParam::Make(0))> segments;
  for (const int64_t size : sizes) segments.push_back(TypeParam::Make(size));
  auto batch = std::make_unique<Batch>();
  size_t next = 0;  // the segment that must come now
  const auto skip_empty = [&] {
    while (next < sizes.size() && sizes[next] == 0) ++next;
  };
  int64_t tiles = 0;
  int launches = 0;
  ForEachBatch(segments.data(), segments.size(), kMaxGridBlocks, TypeParam::Tiles, *batch, true,
               [&](int64_t tiles_before) {
                 ++launches;
                 EXPECT_EQ(tiles_before, tiles);
                 EXPECT_LE(batch->tiles(), kMaxGridBlocks);
                 for (int i = 0; i < batch->count; ++i, ++next) {
                   skip_empty();
                   const int64_t first = batch->first_tile[i];
                   const int64_t count = CeilDiv(sizes[next], TypeParam::kTile);
                   EXPECT_EQ(batch->segments[i].size, sizes[next]) << next;
                   EXPECT_EQ(batch->first_tile[i + 1] - first, count) << next;
                   for (const int64_t tile : {first, first + count / 2, first + count - 1}) {
                     EXPECT_EQ(batch->Find(tile), i) << next;
                   }
                   tiles += count;
                 }
                 return true;
               });
  skip_empty();
  EXPECT_EQ(next, sizes.size());
  EXPECT_GT(launches, 4800 / Batch::kMaxSegments);
}

struct Piece {
  int64_t size;
  int64_t id;
};

std::vector<Piece> Pieces(const std::vector<int64_t>& sizes) {
  std::vector<Piece> pieces;
  for (const int64_t size : sizes) pieces.push_back({size, static_cast<int64_t>(pieces.size())});
  return pieces;
}

TEST(LargeCpuListsTest, PlansEverySegmentThatIsNotEmpty) {
  const std::vector<int64_t> sizes = LargeSizes();
  const auto plan = PlanSegments<Piece>(Pieces(sizes), kCpuTile);
  size_t planned = 0;
  int64_t tiles = 0;
  int64_t elements = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    ASSERT_LT(planned, plan.size());
    EXPECT_EQ(plan[planned].segment.id, static_cast<int64_t>(i));
    EXPECT_EQ(plan[planned].first_tile, tiles);
    ++planned;
    tiles += (sizes[i] - 1) / 4096 + 1;
    elements += sizes[i];
  }
  EXPECT_EQ(planned, plan.size());
  EXPECT_EQ(CountTiles(plan, kCpuTile), tiles);
  EXPECT_EQ(CountElements(plan), elements);
  EXPECT_GT(elements, int64_t{1} << 42);

  const auto empty = PlanSegments<Piece>(Pieces({0, 0, 0}), kCpuTile);
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(CountTiles(empty, kCpuTile), 0);
}

TEST(LargeCpuListsTest, GivesEveryElementToExactlyOneRange) {
  struct Range {
    int64_t id, begin, end, first_tile;
  };
  constexpr int64_t kOne = 1;
  const std::vector<int64_t> sizes = {0, 3, (kOne << 31) + 1, 0, (kOne << 33) + 4095, 4097, 0};
  const auto plan = PlanSegments<Piece>(Pieces(sizes), kCpuTile);
  device::ThreadPool pool(3);
  std::mutex mutex;
  std::vector<Range> ranges;
  ForEachRange(plan, kCpuTile, pool,
               [&](const Piece& piece, int64_t begin, int64_t end, int64_t first_tile) {
                 const std::lock_guard<std::mutex> lock(mutex);
                 ranges.push_back({piece.id, begin, end, first_tile});
               });
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.first_tile < b.first_tile; });
  size_t next = 0;
  int64_t tile = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t begin = 0; begin < sizes[i]; ++next) {
      ASSERT_LT(next, ranges.size());
      const Range& range = ranges[next];
      ASSERT_EQ(range.id, static_cast<int64_t>(i));
      ASSERT_EQ(range.begin, begin);
      ASSERT_EQ(range.first_tile, tile);
      ASSERT_GT(range.end, begin);
      ASSERT_LE(range.end, sizes[i]);
      tile += CeilDiv(range.end - begin, kCpuTile);
      begin = range.end;
    }
  }
  EXPECT_EQ(next, ranges.size());
}

}  // namespace
}  // namespace brigade::kernels
