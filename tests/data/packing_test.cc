#include "brigade/data/packing.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PackBestFitTest, FillsPacksWithWhatFitsBest) {
  // 6 stands alone with 4 left, 5 with 5; 4 goes to 6, 3 and 2 to 5.
  EXPECT_THAT(PackBestFit({2, 5, 6, 3, 4}, 10),
              ElementsAre(ElementsAre(0, 1, 3), ElementsAre(2, 4)));
  EXPECT_THAT(PackBestFit({}, 10), IsEmpty());
  EXPECT_THAT(PackBestFit({10, 10}, 10), ElementsAre(ElementsAre(0), ElementsAre(1)));
  // Equal ones in their order.
  EXPECT_THAT(PackBestFit({1, 1, 1, 1, 1}, 2),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

// The same by its definition, slowly.
std::vector<std::vector<int64_t>> Slowly(const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  std::vector<std::vector<int64_t>> packs;
  std::vector<int64_t> room;
  for (const int64_t piece : order) {
    const int64_t length = lengths[static_cast<size_t>(piece)];
    size_t best = room.size();
    for (size_t i = 0; i < room.size(); ++i) {
      if (room[i] >= length && (best == room.size() || room[i] < room[best])) best = i;
    }
    if (best == room.size()) {
      packs.emplace_back();
      room.push_back(capacity);
    }
    packs[best].push_back(piece);
    room[best] -= length;
  }
  for (auto& pack : packs) std::sort(pack.begin(), pack.end());
  std::sort(packs.begin(), packs.end());
  return packs;
}

TEST(PackBestFitTest, IsBestFitDecreasing) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t capacity = 1 + static_cast<int64_t>(random() % 40);
    std::vector<int64_t> lengths(random() % 60);
    for (int64_t& length : lengths) {
      length = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(capacity));
    }
    ASSERT_EQ(PackBestFit(lengths, capacity), Slowly(lengths, capacity));
  }
}

}  // namespace
}  // namespace brigade::data
