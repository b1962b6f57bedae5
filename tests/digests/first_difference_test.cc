#include "brigade/digests/first_difference.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "brigade/kernels/digest/digest_cpu.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::digests {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

DigestLog LogOf(const std::string& unit, const std::vector<float>& weights) {
  const auto size = static_cast<int64_t>(weights.size());
  const int64_t bytes = 4 * size;
  StepRecord record = {.step = 1, .skipped = false, .gradients = {}, .weights = {}};
  record.weights.push_back(kernels::DigestRange({weights.data(), bytes, 0, 0, 0, 0}, 0, bytes));
  return {.header = {.tensors = {{unit, "w", {size}, size}}, .run = ""}, .steps = {record}};
}

TEST(FirstDifferenceTest, RefusesOtherModelsAndOtherSteps) {
  const DigestLog log = LogOf("h.0", {1, 2});
  EXPECT_THAT(FirstDifference(log, LogOf("h.0", {1, 2, 3})).status(),
              StatusIs(kInvalid, HasSubstr("tensor 0 is w [2] of unit \"h.0\" in one, w [3] of")));
  EXPECT_THAT(FirstDifference(log, LogOf("h.1", {1, 2})).status(),
              StatusIs(kInvalid, HasSubstr("of unit \"h.1\" in the other")));
  DigestLog more = log;
  more.header.tensors.push_back({"h.1", "v", {2}, 2});
  more.steps[0].weights.push_back({{1, 2}});
  EXPECT_THAT(FirstDifference(log, more).status(),
              StatusIs(kInvalid, HasSubstr("tensor 1 is nothing in one, v [2]")));
  DigestLog later = log;
  later.steps[0].step = 2;
  EXPECT_THAT(FirstDifference(log, later).status(),
              StatusIs(kInvalid, HasSubstr("no step in common")));
}

TEST(FirstDifferenceTest, StepsBetweenOthersThatOneFileAloneHasAreCounted) {
  const auto of_steps = [](const std::vector<int64_t>& steps) {
    DigestLog log = LogOf("h.0", {1, 2});
    const StepRecord record = log.steps[0];
    log.steps.clear();
    for (const int64_t step : steps) {
      log.steps.push_back(record);
      log.steps.back().step = step;
    }
    return log;
  };
  struct Case {
    std::vector<int64_t> first, second;
    int64_t steps, alone;
  };
  for (const Case& each : {
           Case{{1, 2, 3}, {1, 2, 3}, 3, 0},
           // One begins later or ends earlier.
           Case{{1, 2, 3, 4, 5}, {3, 4}, 2, 0},
           Case{{1, 2}, {2, 3, 4}, 1, 0},
           Case{{1, 2, 5, 6}, {1, 2, 3, 4, 5, 6}, 4, 2},
           Case{{1, 3, 4, 6}, {1, 2, 4, 5, 6, 7}, 3, 3},
       }) {
    const DigestLog first = of_steps(each.first), second = of_steps(each.second);
    for (const auto& compared : {FirstDifference(first, second), FirstDifference(second, first)}) {
      ASSERT_OK(compared);
      EXPECT_FALSE(compared->difference.has_value());
      EXPECT_EQ(compared->steps, each.steps);
      EXPECT_EQ(compared->alone, each.alone);
    }
  }
}

// Gradients of h.1 are made first, and h.0's follow from them.
TEST(FirstDifferenceTest, AStepThatOneSkipsIsNamedByItsGradients) {
  DigestLog log = LogOf("h.0", {1, 2});
  log.header.tensors.push_back({"h.1", "v", {2}, 2});
  StepRecord& step = log.steps[0];
  step.weights.push_back({{1, 2}});
  step.gradients = {{{3, 4}}, {{5, 6}}};
  DigestLog other = log;
  other.steps[0].gradients = {{{7, 7}}, {{8, 8}}};
  const auto compare = [&](bool skips, bool other_skips) {
    log.steps[0].skipped = skips;
    other.steps[0].skipped = other_skips;
    return FirstDifference(log, other).value().difference;
  };
  for (const bool skips : {false, true}) {
    const auto found = compare(skips, !skips);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->kind, "gradients");
    EXPECT_TRUE(found->one_skips);
    EXPECT_EQ(found->tensors, std::vector<std::string>({"v", "w"}));
  }
  EXPECT_FALSE(compare(false, false)->one_skips);
  // NaN of two overflows may have any bits.
  EXPECT_FALSE(compare(true, true).has_value());
  // Where gradients say nothing.
  other.steps[0].gradients = log.steps[0].gradients;
  ASSERT_TRUE(compare(false, true).has_value());
  EXPECT_EQ(compare(false, true)->kind, "skipped");
  log.steps[0].gradients.clear();
  EXPECT_EQ(compare(false, true)->tensor, -1);
}

TEST(FirstDifferenceTest, ADumpThatCannotBeLookedAtIsAnError) {
  const DigestLog logs[2] = {LogOf("h.0", {1, 2}), LogOf("h.0", {1, 3})};
  const auto compared = FirstDifference(logs[0], logs[1]);
  ASSERT_OK(compared);
  const std::string folders[2] = {std::string(5000, 'x'), ::testing::TempDir()};
  EXPECT_THAT(CompareDumps(*compared->difference, logs, folders, 1).status().ToString(),
              HasSubstr("File name too long"));
}

// Whatever comes behind it.
TEST(FirstDifferenceTest, TheLargestDifferenceIsNanIfOneIs) {
  const std::string folders[2] = {::testing::TempDir() + "/a", ::testing::TempDir() + "/b"};
  const std::vector<float> weights[2] = {{1, 2, 3, 4},
                                         {1, std::numeric_limits<float>::quiet_NaN(), 3, 6}};
  DigestLog logs[2];
  for (size_t side = 0; side < 2; ++side) {
    logs[side] = LogOf("h.0", weights[side]);
    std::filesystem::create_directories(folders[side] + "/weights");
    std::ofstream(folders[side] + "/weights/w.fp32", std::ios::binary)
        .write(reinterpret_cast<const char*>(weights[side].data()), 16);
  }
  const auto compared = FirstDifference(logs[0], logs[1]);
  ASSERT_OK(compared);
  ASSERT_TRUE(compared->difference.has_value());
  const auto found = CompareDumps(*compared->difference, logs, folders, 1);
  ASSERT_OK(found);
  EXPECT_EQ(found->differing, 2);
  EXPECT_TRUE(std::isnan(found->largest));
  ASSERT_EQ(found->first.size(), 1u);
  EXPECT_EQ(found->first[0].element, 1);
}

}  // namespace
}  // namespace brigade::digests
