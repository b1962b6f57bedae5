#include "brigade/kernels/internal/gpu_tile.h"

#include <string>
#include <type_traits>

#include "brigade/kernels/internal/segments.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/sparse_array.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

// Adds 1 to all that the threads of a tile touch of each array.
template <typename Layout, typename... T>
void AddOne(const Layout& layout, int64_t size, int64_t tile, T*... arrays) {
  const auto add = [&](const auto& chunk) {
    const auto add_to = [&](auto* array) {
      auto pack = chunk.Load(array);
      for (auto& value : pack.values) ++value;
      chunk.Store(pack, array);
    };
    (add_to(arrays), ...);
  };
  for (int thread = 0; thread < kTileThreads; ++thread) layout.ForThread(size, tile, thread, add);
}

template <typename T>
void ExpectOnes(const GuardedArray<T>& array, const std::string& how) {
  EXPECT_TRUE(array.GuardsAreIntact()) << how;
  for (int64_t i = 0; i < array.size(); ++i) ASSERT_EQ(array[i], T{1}) << how << ", element " << i;
}

// Each element of both arrays is touched once, wherever they start.
template <typename Narrow, typename Wide, int kPack>
void CoverOnce() {
  for (const int64_t size : {1, 31, 255, 256, 257, 2047, 2048, 2049, 4095, 4099, 10001}) {
    for (const int64_t narrow : {0, 1, 4, 7, 8, 15, 16, 31}) {
      for (const int64_t wide : {narrow, narrow + 4, narrow + 1}) {
        GuardedArray<Narrow> a(size, narrow);
        GuardedArray<Wide> b(size, wide);
        PackLayout<GroupSize(sizeof(Wide)), kPack> layout(a.data());
        layout.Add(b.data());
        for (int64_t tile = 0; tile < layout.Tiles(size); ++tile) {
          AddOne(layout, size, tile, a.data(), b.data());
        }
        const std::string how = "size " + std::to_string(size) + ", offsets " +
                                std::to_string(narrow) + " and " + std::to_string(wide);
        ExpectOnes(a, how);
        ExpectOnes(b, how);
        EXPECT_TRUE(wide != narrow || layout.whole()) << how;
        EXPECT_TRUE(wide != narrow + 1 || !layout.whole()) << how;
      }
    }
  }
}

TEST(GpuTileTest, TouchesEveryElementOnceInEveryMixOfTypes) {
  CoverOnce<float, float, 8>();
  CoverOnce<uint16_t, float, 8>();
  CoverOnce<uint16_t, uint16_t, 8>();
  CoverOnce<uint16_t, uint16_t, 32>();
  CoverOnce<double, double, 8>();
  CoverOnce<uint8_t, uint8_t, 16>();
}

TEST(GpuTileTest, CoversASegmentOfMoreThan2To31ElementsOnce) {
  constexpr int64_t kSize = (int64_t{1} << 31) + 4099;
  constexpr int64_t kShift = 3;
  const SparseArray<uint8_t> array(kSize, kShift);
  const PackLayout<16, 16> layout(array.data());
  EXPECT_TRUE(layout.whole());
  EXPECT_EQ(layout.shift(), kShift);
  const int64_t tiles = layout.Tiles(kSize);
  EXPECT_EQ(tiles, CeilDiv(kSize + kShift, layout.kTile));
  // The first tiles and the last ones; in between all are alike.
  for (const int64_t tile : {int64_t{0}, int64_t{1}, tiles - 2, tiles - 1}) {
    AddOne(layout, kSize, tile, array.data());
  }
  const int64_t first_end = 2 * layout.kTile - kShift;
  const int64_t last_begin = (tiles - 2) * layout.kTile - kShift;
  const auto expect = [&](int64_t begin, int64_t end, uint8_t wanted) {
    for (int64_t i = begin; i < end; ++i) ASSERT_EQ(array[i], wanted) << "element " << i;
  };
  expect(-kShift, 0, 0);
  expect(0, first_end, 1);
  expect(first_end, first_end + 100, 0);
  expect(last_begin - 100, last_begin, 0);
  expect(last_begin, kSize, 1);
  expect(kSize, kSize + 1, 0);
}

TEST(GpuTileTest, CostsAnOddAddressOnlyItsEdges) {
  constexpr int64_t kSize = 10001;
  for (int64_t shift = 0; shift < 8; ++shift) {
    GuardedArray<float> array(kSize, shift);
    const PackLayout<4> layout(array.data());
    int whole = 0, edges = 0;
    for (int64_t tile = 0; tile < layout.Tiles(kSize); ++tile) {
      for (int warp = 0; warp < kTileThreads; warp += kWarp) {
        layout.ForThread(kSize, tile, warp, [&](const auto& chunk) {
          ++(std::is_same_v<decltype(chunk), const WholeChunk<4, kPackSize>&> ? whole : edges);
        });
      }
    }
    EXPECT_LE(edges, 2) << shift;
    EXPECT_EQ(whole + edges, CeilDiv(kSize + shift, layout.kChunk)) << shift;
  }
}

TEST(GpuTileTest, TakesSingleElementsOnlyWhereGroupsCannotBeAligned) {
  const auto at = [](uintptr_t address) { return reinterpret_cast<const float*>(address); };
  const auto half_at = [](uintptr_t address) {
    return reinterpret_cast<const precision::Half*>(address);
  };
  const auto whole = [](const auto* narrowest, const auto* other) {
    PackLayout<4> layout(narrowest);
    layout.Add(other);
    return layout.whole();
  };
  EXPECT_TRUE(whole(at(1024 + 4), at(2048 + 4)));
  EXPECT_TRUE(whole(at(1024 + 4), at(2048 + 20)));  // half a sector apart
  EXPECT_FALSE(whole(at(1024 + 4), at(2048 + 8)));
  EXPECT_TRUE(whole(half_at(2048 + 10), at(1024 + 20)));  // 5 elements past
  EXPECT_TRUE(whole(half_at(2048 + 10), at(1024 + 4)));   // 5 mod 4 is 1
  EXPECT_FALSE(whole(half_at(2048 + 2), at(1024)));
}

}  // namespace
}  // namespace brigade::kernels
