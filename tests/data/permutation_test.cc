#include "brigade/data/permutation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::data {
namespace {

using ::testing::ElementsAre;
using ::testing::Lt;

std::vector<int64_t> Order(int64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back(permutation.At(i));
  return order;
}

// The chi-square statistic of counts that should be equal, in standard deviations from its mean.
double Surprise(const std::vector<int64_t>& counts) {
  double sum = 0;
  for (const int64_t count : counts) sum += static_cast<double>(count);
  const double mean = sum / static_cast<double>(counts.size());
  double chi = 0;
  for (const int64_t count : counts) chi += std::pow(static_cast<double>(count) - mean, 2) / mean;
  const auto degrees = static_cast<double>(counts.size() - 1);
  return (chi - degrees) / std::sqrt(2 * degrees);
}

TEST(PermutationTest, HasEachNumberOnce) {
  for (int64_t size = 1; size < 1100; size += size < 70 ? 1 : 13) {
    std::vector<int64_t> order = Order(size, 7, 3);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i) << size;
  }
  for (const int64_t size : {1023, 1024, 1025, 4095, 4096, 4097, 65537}) {
    std::vector<bool> seen(static_cast<size_t>(size));
    for (const int64_t number : Order(size, 1, 0)) {
      ASSERT_TRUE(number >= 0 && number < size && !seen[static_cast<size_t>(number)]) << size;
      seen[static_cast<size_t>(number)] = true;
    }
  }
}

TEST(PermutationTest, TakesSizesBeyondMemory) {
  for (const int64_t size : {int64_t{1} << 40, (int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    const Permutation permutation(size, 5, 9);
    std::map<int64_t, int> seen;
    for (int64_t i = 0; i < 1000; ++i) {
      const int64_t number = permutation.At(size - 1 - i);
      ASSERT_TRUE(number >= 0 && number < size);
      ASSERT_EQ(seen[number]++, 0);
    }
  }
}

// Checkpoints rely on these orders: they must never change. A second implementation, in Python,
// gave the same ones.
TEST(PermutationTest, StaysAsItIs) {
  EXPECT_THAT(Order(10, 0, 0), ElementsAre(5, 7, 4, 3, 1, 0, 6, 9, 8, 2));
  EXPECT_THAT(Order(10, 0, 1), ElementsAre(9, 0, 2, 5, 7, 3, 6, 4, 8, 1));
  EXPECT_THAT(Order(10, 1, 0), ElementsAre(1, 6, 0, 2, 5, 3, 8, 4, 7, 9));
  const Permutation large(int64_t{1000000007}, 0x123456789abcdefu, 2);
  EXPECT_EQ(large.At(0), 618951599);
  EXPECT_EQ(large.At(1000000006), 333382076);
}

TEST(PermutationTest, GivesAllOrdersOfFiveEquallyOften) {
  std::map<std::vector<int64_t>, int64_t> times;
  for (uint64_t seed = 0; seed < 2400; ++seed) ++times[Order(5, seed, seed % 3)];
  ASSERT_EQ(times.size(), 120u);
  std::vector<int64_t> counts;
  for (const auto& [order, count] : times) counts.push_back(count);
  EXPECT_THAT(Surprise(counts), Lt(5));
}

TEST(PermutationTest, PutsEachNumberAnywhereEquallyOften) {
  constexpr int64_t kSize = 37;
  std::vector<int64_t> counts(kSize * kSize), pairs(kSize * kSize);
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const std::vector<int64_t> order = Order(kSize, seed, 0);
    for (int64_t i = 0; i < kSize; ++i) {
      ++counts[static_cast<size_t>(i * kSize + order[static_cast<size_t>(i)])];
    }
    // Where neighbours go, without the diagonal, on which nothing is.
    ++pairs[static_cast<size_t>(order[11] * kSize + order[12])];
  }
  EXPECT_THAT(Surprise(counts), Lt(5));
  std::vector<int64_t> apart;
  for (int64_t i = 0; i < kSize * kSize; ++i) {
    if (i % (kSize + 1) == 0) {
      EXPECT_EQ(pairs[static_cast<size_t>(i)], 0);
    } else {
      apart.push_back(pairs[static_cast<size_t>(i)]);
    }
  }
  EXPECT_THAT(Surprise(apart), Lt(5));
}

TEST(PermutationTest, EpochsAndSeedsAreIndependent) {
  // Numbers that stay in their places are one in expectation, whatever two orders are compared.
  for (const auto& [seed, epoch] : {std::pair{0, 1}, {1, 0}, {1, 1}, {2, 0}, {0, 2}}) {
    const std::vector<int64_t> a = Order(5000, 0, 0), b = Order(5000, seed, epoch);
    int64_t same = 0;
    for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i] ? 1 : 0;
    EXPECT_LT(same, 10) << seed << ", " << epoch;
  }
}

}  // namespace
}  // namespace brigade::data
