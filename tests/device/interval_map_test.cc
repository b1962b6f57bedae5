#include "brigade/device/race_checker/interval_map.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace brigade::device::internal {
namespace {

using Map = IntervalMap<std::string>;

std::string Show(const Map& map) {
  std::string text;
  map.ForEach(0, 1000, [&](uintptr_t begin, uintptr_t end, const std::string& value) {
    absl::StrAppend(&text, "[", begin, ",", end, ")", value, " ");
  });
  return text;
}

void Append(Map& map, uintptr_t begin, uintptr_t end, const std::string& text) {
  map.Update(begin, end, [&](uintptr_t, uintptr_t, std::string& value) { value += text; });
}

void Set(Map& map, uintptr_t begin, uintptr_t end, const std::string& text) {
  map.Update(begin, end, [&](uintptr_t, uintptr_t, std::string& value) { value = text; });
}

TEST(IntervalMapTest, SplitsFillsGapsAndMerges) {
  Map map;
  Append(map, 10, 20, "a");
  Append(map, 30, 40, "a");
  EXPECT_EQ(Show(map), "[10,20)a [30,40)a ");
  Append(map, 15, 35, "b");
  EXPECT_EQ(Show(map), "[10,15)a [15,20)ab [20,30)b [30,35)ab [35,40)a ");
  Set(map, 0, 50, "c");
  EXPECT_EQ(Show(map), "[0,50)c ");
  map.Erase(20, 30);
  EXPECT_EQ(Show(map), "[0,20)c [30,50)c ");
  Set(map, 20, 30, "c");
  EXPECT_EQ(Show(map), "[0,50)c ");
  map.UpdateAll([](std::string& value) { value.clear(); });
  EXPECT_EQ(map.size(), 0u);
}

TEST(IntervalMapTest, CutsVisitsToTheRangeAskedFor) {
  Map map;
  Append(map, 10, 20, "a");
  std::string seen;
  map.ForEach(12, 15, [&](uintptr_t begin, uintptr_t end, const std::string&) {
    seen = absl::StrCat(begin, "-", end);
  });
  EXPECT_EQ(seen, "12-15");
  map.ForEach(20, 30, [&](uintptr_t, uintptr_t, const std::string&) { ADD_FAILURE(); });
}

TEST(IntervalMapTest, EqualsAnArrayUnderRandomUpdates) {
  std::minstd_rand random(7);
  Map map;
  std::array<std::string, 64> array;
  for (int round = 0; round < 3000; ++round) {
    const auto begin = static_cast<uintptr_t>(random() % 64);
    const auto end = begin + random() % (65 - begin);
    const std::string value(random() % 3 == 0 ? 0 : 1, "xy"[random() % 2]);
    Set(map, begin, end, value);
    std::fill(array.begin() + static_cast<int64_t>(begin),
              array.begin() + static_cast<int64_t>(end), value);
    std::array<std::string, 64> read;
    size_t pieces = 0;
    map.ForEach(0, 64, [&](uintptr_t b, uintptr_t e, const std::string& v) {
      ++pieces;
      for (uintptr_t i = b; i < e; ++i) read[i] = v;
    });
    ASSERT_EQ(read, array);
    size_t runs = 0;  // the fewest pieces that can say it
    for (size_t i = 0; i < 64; ++i)
      runs += !array[i].empty() && (i == 0 || array[i] != array[i - 1]);
    ASSERT_EQ(pieces, runs);
    ASSERT_EQ(map.size(), runs);
  }
}

}  // namespace
}  // namespace brigade::device::internal
