#include "brigade/nn/grouped_heads.h"

#include <cstdint>
#include <vector>

#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

// Queries of head h, and keys and values of head h * key_value_heads / heads, are in place h.
TEST(GroupedHeadsTest, EachHeadOfAGroupGetsTheKeysAndValuesOfTheGroup) {
  for (const auto& [heads, groups] : {std::pair<int64_t, int64_t>{4, 2}, {6, 2}, {3, 1}, {2, 2}}) {
    constexpr int64_t kRows = 3, kWidth = 5;
    Lab lab;
    const GroupedHeadsShape shape = {DType::kFloat64, kRows, heads, groups, kWidth};
    const int64_t columns = (heads + 2 * groups) * kWidth;
    const auto grouped = lab.Noise<double>(kRows * columns);
    const auto all = lab.Raw<double>(kRows * 3 * heads * kWidth);
    const auto f = [&] {
      EXPECT_OK(RepeatHeads(shape, grouped.data(), all.data(), lab.stream()));
      EXPECT_OK(lab.stream().Synchronize());
    };
    f();
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t group = h * groups / heads;
        const int64_t sources[] = {h, heads + group, heads + groups + group};
        for (int64_t which = 0; which < 3; ++which) {
          for (int64_t c = 0; c < kWidth; ++c) {
            ASSERT_EQ(all[(r * 3 * heads + which * heads + h) * kWidth + c],
                      grouped[r * columns + sources[which] * kWidth + c])
                << r << " " << h << " " << which;
          }
        }
      }
    }
    const auto dall = lab.Noise<double>(all.size()), dgrouped = lab.Raw<double>(grouped.size());
    ASSERT_OK(RepeatHeadsBackward(shape, dall.data(), dgrouped.data(), lab.stream()));
    ASSERT_OK(lab.stream().Synchronize());
    ExpectGradient(grouped, dgrouped, [&] {
      f();
      return Dot(all, dall);
    });
  }
}

TYPED_TEST(TypesTest, GroupedHeadsAddUpWithOneRoundingAndTheSameBitsEverywhere) {
  using T = TypeParam;
  constexpr int64_t kRows = 40, kHeads = 6, kGroups = 2, kWidth = 33;
  std::vector<double> wanted;
  const auto sums = SameBits<T>([&](Lab& lab) {
    const auto all = lab.Noise<T>(kRows * 3 * kHeads * kWidth);
    const auto grouped = lab.Raw<T>(kRows * (kHeads + 2 * kGroups) * kWidth);
    EXPECT_OK(RepeatHeadsBackward({precision::kDType<T>, kRows, kHeads, kGroups, kWidth},
                                  all.data(), grouped.data(), lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    wanted.clear();
    for (int64_t c = 0; c < kWidth; ++c) {
      // Of the keys of the first row's second group.
      double sum = 0;
      for (int64_t h = 3; h < 6; ++h) {
        sum += static_cast<double>(Widen(all[(kHeads + h) * kWidth + c]));
      }
      wanted.push_back(sum);
    }
    return grouped;
  });
  for (int64_t c = 0; c < kWidth; ++c) {
    EXPECT_NEAR(static_cast<double>(Widen(sums[(kHeads + 1) * kWidth + c])), wanted[c],
                1.01 * Rounding<T>() * 3);
  }
}

TEST(GroupedHeadsTest, NumbersThatDoNotDivideAreRefused) {
  Lab lab;
  EXPECT_EQ(RepeatHeads({DType::kFloat32, 2, 4, 3, 8}, nullptr, nullptr, lab.stream()),
            absl::InvalidArgumentError("repeat_heads: 2 rows of 4 heads of queries and 3 of keys "
                                       "and values, 8 wide; the latter must divide the former"));
  for (const GroupedHeadsShape& shape : {GroupedHeadsShape{DType::kFloat32, 2, 4, 0, 8},
                                         {DType::kFloat32, 2, 0, 1, 8},
                                         {DType::kFloat32, 2, 4, 2, 0},
                                         {DType::kFloat32, -1, 4, 2, 8},
                                         {DType::kInt32, 2, 4, 2, 8}}) {
    EXPECT_EQ(RepeatHeadsBackward(shape, nullptr, nullptr, lab.stream()).code(),
              absl::StatusCode::kInvalidArgument);
  }
  // Nothing to do.
  EXPECT_OK(RepeatHeads({DType::kFloat32, 0, 4, 2, 8}, nullptr, nullptr, lab.stream()));
}

}  // namespace
}  // namespace brigade::nn
