#include "brigade/digests/tensor_map.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::digests {
namespace {

using ::brigade::testing::StatusIs;
using parallel::Shard;
using parallel::TensorShards;
using ::testing::HasSubstr;

// By the piece's definition.
std::map<int64_t, int64_t> Elements(const std::vector<ShardPiece>& pieces) {
  std::map<int64_t, int64_t> global_of_local;
  for (const ShardPiece& piece : pieces) {
    const int64_t run = piece.run == 0 ? piece.size : piece.run;
    for (int64_t i = 0; i < piece.size; ++i) {
      const bool is_new =
          global_of_local.emplace(piece.local + i, piece.first + i / run * piece.stride + i % run)
              .second;
      EXPECT_TRUE(is_new) << piece.local + i;
    }
  }
  return global_of_local;
}

TEST(TensorMapTest, PiecesAreTheRunsOfTheShard) {
  const std::vector<Shard> shards = {{{12}},         {{12}, 0},       {{8, 6}, 0},
                                     {{5, 8}, 1},    {{5, 24}, 1, 3}, {{24, 5}, 0, 3},
                                     {{3, 8, 5}, 1}, {{24}, 0, 3},    {{0, 8}, 1}};
  for (const Shard& shard : shards) {
    for (const TensorShards of : {TensorShards{4, 1, 0}, {4, 2, 1}, {4, 4, 2}, {2, 2, 1}}) {
      std::map<int64_t, int64_t> all;
      parallel::ForEachRun(shard, of, [&](const parallel::ShardRun& run) {
        for (int64_t i = 0; i < run.size; ++i) all[run.local + i] = run.global + i;
      });
      const int64_t size = shard.local_size(of);
      ASSERT_EQ(static_cast<int64_t>(all.size()), size);
      for (int64_t begin = 0; begin <= size; ++begin) {
        for (int64_t end = begin; end <= size; ++end) {
          const std::vector<ShardPiece> pieces = PiecesOf(shard, of, begin, end);
          const std::map<int64_t, int64_t> wanted(all.find(begin), all.find(end));
          ASSERT_EQ(Elements(pieces), wanted) << begin << " to " << end;
          ASSERT_LE(pieces.size(), static_cast<size_t>(2 * of.local()));
        }
      }
    }
  }
}

TEST(TensorMapTest, RefusesAPlanOfAnotherModel) {
  const auto plan = zero::Plan::Create({{"unit", {{"a", 10}, {"b", 4}}}}, {}).value();
  EXPECT_THAT(TensorMap::Create({.model = {{"unit", {{"a", 10}}}}}, plan).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no parameter b")));
  EXPECT_THAT(TensorMap::Create({.model = {{"unit", {{"a", 10}, {"b", 5}}}}}, plan).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("b has 4 elements on this rank, 5 by the model")));
}

}  // namespace
}  // namespace brigade::digests
