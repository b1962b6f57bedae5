#include "brigade/parallel/shard.h"

#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;

// The indices in the whole parameter, in the order in which they lie on the rank.
std::vector<int64_t> Elements(const Shard& shard, const TensorShards& shards) {
  std::vector<int64_t> elements;
  int64_t last_end = -1;
  ForEachRun(shard, shards, [&](const ShardRun& run) {
    EXPECT_EQ(run.local, static_cast<int64_t>(elements.size()));
    EXPECT_GT(run.size, 0);
    EXPECT_NE(run.global, last_end) << "runs that could be one";
    last_end = run.global + run.size;
    for (int64_t i = 0; i < run.size; ++i) elements.push_back(run.global + i);
  });
  EXPECT_EQ(shard.local_size(shards), static_cast<int64_t>(elements.size()));
  return elements;
}

TEST(ShardTest, CutsRowsColumnsAndPartsSideBySide) {
  const Shard rows = {.shape = {4, 3}, .axis = 0};
  EXPECT_THAT(Elements(rows, {2, 2, 1}), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(Elements(rows, {4, 2, 0}), ElementsAre(0, 1, 2, 3, 4, 5));
  const Shard columns = {.shape = {2, 4}, .axis = 1};
  EXPECT_THAT(Elements(columns, {2, 2, 1}), ElementsAre(2, 3, 6, 7));
  // Shard by shard: [2, 1] of each.
  EXPECT_THAT(Elements(columns, {4, 2, 1}), ElementsAre(2, 6, 3, 7));
  // Queries, keys and values of two heads each.
  const Shard qkv = {.shape = {6, 2}, .axis = 0, .parts = 3};
  EXPECT_THAT(Elements(qkv, {2, 2, 0}), ElementsAre(0, 1, 4, 5, 8, 9));
  EXPECT_THAT(Elements(qkv, {2, 2, 1}), ElementsAre(2, 3, 6, 7, 10, 11));
  EXPECT_THAT(Elements(qkv, {2, 1, 0}), ElementsAre(0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11));
  const Shard vector = {.shape = {4}, .axis = 0};
  EXPECT_THAT(Elements(vector, {4, 4, 2}), ElementsAre(2));
  const Shard whole = {.shape = {2, 2}};
  EXPECT_THAT(Elements(whole, {4, 2, 1}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Elements({.shape = {0, 2}, .axis = 1}, {2, 2, 0}), ElementsAre());
}

// What t ranks hold, one after another, is what one rank with all shards holds.
TEST(ShardTest, RanksTogetherHoldWhatOneHolds) {
  for (const Shard& shard : {Shard{.shape = {24, 5}, .axis = 0, .parts = 3},
                             {.shape = {3, 16}, .axis = 1},
                             {.shape = {2, 8, 3}, .axis = 1},
                             {.shape = {16}, .axis = 0}}) {
    const std::vector<int64_t> all = Elements(shard, {8, 1, 0});
    for (const int ranks : {2, 4, 8}) {
      std::vector<int64_t> joined;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int64_t> part = Elements(shard, {8, ranks, rank});
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, all) << ranks;
    }
  }
}

TEST(ShardTest, WhatEveryRankHoldsCountsOnce) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE((Shard{.shape = {4}, .axis = 0}).counts_on({4, 4, rank}));
    EXPECT_EQ((Shard{.shape = {4}}).counts_on({4, 4, rank}), rank == 0);
  }
}

TEST(ShardTest, WhatDoesNotDivideIsNamed) {
  const auto invalid = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, text);
  };
  EXPECT_OK(Validate(TensorShards{8, 2, 1}));
  EXPECT_OK(Validate(TensorShards{3, 3, 2}));
  EXPECT_THAT(Validate(TensorShards{6, 2, 0}),
              invalid("tensor shards: 2 ranks cannot share 6 shards: that is one for each rank, or "
                      "a power of two that they divide"));
  EXPECT_THAT(Validate(TensorShards{2, 4, 0}), invalid("tensor shards: 4 ranks cannot share 2 "
                                                       "shards: that is one for each rank, or a "
                                                       "power of two that they divide"));
  EXPECT_THAT(Validate(TensorShards{8, 3, 0}), invalid("tensor shards: 3 ranks cannot share 8 "
                                                       "shards: that is one for each rank, or a "
                                                       "power of two that they divide"));
  EXPECT_THAT(Validate(TensorShards{2, 2, 2}), invalid("tensor shards: rank 2 of 2 with 2 shards"));
  EXPECT_THAT(Validate(TensorShards{1 << 16, 1, 0}),
              invalid("tensor shards: rank 0 of 1 with 65536 shards"));
  EXPECT_THAT(Validate(TensorShards{0, 0, 0}), invalid("tensor shards: rank 0 of 0 with 0 shards"));
  EXPECT_OK(Validate(TensorShards{8, 2, 1}, 1, 2));
  EXPECT_THAT(Validate(TensorShards{8, 2, 1}, 1, 4),
              invalid("tensor shards: they are of rank 1 of 2, the communicator is of rank 1 of "
                      "4"));
  EXPECT_OK(Validate(Shard{.shape = {12, 5}, .axis = 0, .parts = 3}, {4, 4, 0}));
  EXPECT_OK(Validate(Shard{.shape = {7}}, {4, 4, 0}));
  EXPECT_THAT(Validate(Shard{.shape = {12, 5}, .axis = 0, .parts = 3}, {8, 2, 0}),
              invalid("shard: axis 0 of [12, 5] in 3 parts cannot be cut into 8 shards"));
  EXPECT_THAT(Validate(Shard{.shape = {12, 5}, .axis = 1}, {2, 2, 0}),
              invalid("shard: axis 1 of [12, 5] in 1 parts cannot be cut into 2 shards"));
  EXPECT_THAT(Validate(Shard{.shape = {-4}, .axis = 0}, {2, 2, 0}),
              invalid("shard: axis 0 of [-4] in 1 parts cannot be cut into 2 shards"));
  EXPECT_THAT(Validate(Shard{.shape = {12}}, {6, 2, 0}),
              invalid("tensor shards: 2 ranks cannot share 6 shards: that is one for each rank, or "
                      "a power of two that they divide"));
  EXPECT_THAT(Validate(Shard{.shape = {12}, .axis = 1}, {2, 2, 0}),
              invalid("shard: [12] has no axis 1"));
  EXPECT_THAT(Validate(Shard{.shape = {12}, .axis = 0, .parts = 0}, {2, 2, 0}),
              invalid("shard: axis 0 of [12] in 0 parts cannot be cut into 2 shards"));
}

}  // namespace
}  // namespace brigade::parallel
