#include "brigade/nn/cached_attention.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "brigade/nn/attention.h"
#include "brigade/nn/grouped_heads.h"
#include "brigade/tests/nn/types_lab.h"

namespace brigade::nn {
namespace {

using precision::DType;

constexpr int64_t kSamples = 2, kHeads = 4, kGroups = 2, kContext = 70, kCapacity = 75;

CachedAttentionShape ShapeOf(DType dtype, int64_t first, int64_t count, int64_t width) {
  return {.dtype = dtype,
          .samples = kSamples,
          .capacity = kCapacity,
          .first = first,
          .count = count,
          .heads = kHeads,
          .key_value_heads = kGroups,
          .head_width = width};
}

// What Attention gives for whole texts, against the same in pieces.
template <typename T>
std::vector<T> InPieces(Lab& lab, absl::Span<const T> projected, int64_t width,
                        const std::vector<int64_t>& pieces) {
  const int64_t columns = (kHeads + 2 * kGroups) * width, out_columns = kHeads * width;
  const auto keys = lab.Raw<T>(kSamples * kCapacity * kGroups * width);
  const auto values = lab.Raw<T>(kSamples * kCapacity * kGroups * width);
  std::vector<T> out(static_cast<size_t>(kSamples * kContext * out_columns));
  int64_t first = 0;
  for (const int64_t count : pieces) {
    const auto piece = lab.Raw<T>(kSamples * count * columns);
    const auto some = lab.Raw<T>(kSamples * count * out_columns);
    for (int64_t s = 0; s < kSamples; ++s) {
      const auto* const from = projected.data() + (s * kContext + first) * columns;
      std::copy(from, from + count * columns, piece.data() + s * count * columns);
    }
    EXPECT_OK(CachedAttention(ShapeOf(precision::kDType<T>, first, count, width), piece.data(),
                              keys.data(), values.data(), some.data(), lab.stream()));
    EXPECT_OK(lab.stream().Synchronize());
    for (int64_t s = 0; s < kSamples; ++s) {
      const auto* const from = some.data() + s * count * out_columns;
      std::copy(from, from + count * out_columns,
                out.data() + (s * kContext + first) * out_columns);
    }
    first += count;
  }
  EXPECT_EQ(first, kContext);
  return out;
}

TYPED_TEST(TypesTest, CachedAttentionIsAttentionInPieces) {
  using T = TypeParam;
  for (const int64_t width : {1, 6, 33}) {
    SCOPED_TRACE(width);
    auto& lab = this->lab_;
    auto& reference = this->reference_;
    const auto projected = this->Noise(kSamples * kContext * (kHeads + 2 * kGroups) * width);
    const auto all = reference.template Raw<double>(kSamples * kContext * 3 * kHeads * width);
    const auto whole = reference.template Raw<double>(kSamples * kContext * kHeads * width);
    const auto sums = reference.template Raw<double>(kSamples * kHeads * kContext);
    ASSERT_OK(RepeatHeads({DType::kFloat64, kSamples * kContext, kHeads, kGroups, width},
                          projected.wide.data(), all.data(), reference.stream()));
    ASSERT_OK(Attention({DType::kFloat64, kSamples, kContext, kHeads, kHeads * width}, all.data(),
                        whole.data(), sums.data(), reference.stream()));
    ASSERT_OK(reference.stream().Synchronize());
    const std::vector<T> once = InPieces<T>(lab, projected.narrow, width, {kContext});
    for (size_t i = 0; i < once.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(Widen(once[i])), whole[i],
                  (std::is_same_v<T, float> ? 40 : 1.01) * Rounding<T>())
          << i;
    }
    // However it is cut, the bits are the same.
    for (const std::vector<int64_t>& pieces :
         {std::vector<int64_t>{1, 1, 68}, {32, 32, 5, 1}, {69, 1}}) {
      const std::vector<T> cut = InPieces<T>(lab, projected.narrow, width, pieces);
      ASSERT_EQ(std::memcmp(cut.data(), once.data(), once.size() * sizeof(T)), 0);
    }
  }
}

TEST(CachedAttentionTest, WhatDoesNotFitIsRefused) {
  Lab lab;
  const auto refused = [&](const CachedAttentionShape& shape) {
    return CachedAttention(shape, nullptr, nullptr, nullptr, nullptr, lab.stream());
  };
  EXPECT_EQ(refused(ShapeOf(DType::kFloat32, 70, 6, 8)),
            absl::InvalidArgumentError(
                "cached_attention: 6 positions behind 70, of 2 texts, in a cache of 75"));
  EXPECT_EQ(refused(ShapeOf(DType::kFloat32, -1, 6, 8)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(ShapeOf(DType::kFloat32, 0, 0, 8)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(ShapeOf(DType::kFloat32, 0, 1, 257)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(ShapeOf(DType::kInt32, 0, 1, 8)).code(), absl::StatusCode::kInvalidArgument);
  CachedAttentionShape shape = ShapeOf(DType::kFloat32, 0, 1, 8);
  shape.key_value_heads = 3;
  EXPECT_EQ(refused(shape).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace brigade::nn
