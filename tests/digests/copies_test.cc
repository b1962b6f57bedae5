#include "brigade/digests/copies.h"

#include <utility>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::digests {
namespace {

using ::brigade::testing::StatusIs;
using kernels::TensorDigest;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<TensorName> kTensors = {{"h.0", "h.0.w", {30}, 30}, {"h.0", "h.0.b", {10}, 10}};
constexpr auto kDamaged = absl::StatusCode::kDataLoss;

// w may be cut over tensor ranks, b is not.
RankShare Share(int place, int shard_group, int tensor, bool whole) {
  return {.place = place,
          .shard_group = shard_group,
          .first_shard = tensor,
          .has_whole_weights = whole,
          .holds = {1, 1},
          .is_cut = {1, 0},
          .counts = {1, static_cast<char>(tensor == 0)}};
}

std::vector<std::vector<CopyHolders>> CopiesOf(const std::vector<RankShare>& shares,
                                               DigestKind kind, int tensor) {
  std::vector<std::vector<CopyHolders>> copies;
  for (const Comparison& each : ComparisonsOf(kTensors, shares)) {
    if (each.kind == kind && each.tensor == tensor) copies.push_back(each.copies);
  }
  return copies;
}

TEST(CopiesTest, RanksThatHaveWeightsWholeAreCopiesEach) {
  const std::vector<RankShare> shares = {Share(0, 0, 0, true), Share(1, 0, 0, true),
                                         Share(2, 0, 0, true)};
  const std::vector<CopyHolders> all = {{0}, {1}, {2}};
  EXPECT_THAT(CopiesOf(shares, DigestKind::kWeights, 0), ElementsAre(all));
  EXPECT_THAT(CopiesOf(shares, DigestKind::kWeights, 1), ElementsAre(all));
  EXPECT_THAT(CopiesOf(shares, DigestKind::kGradients, 0), IsEmpty());
  EXPECT_EQ(Covered(kTensors, shares, ComparisonsOf(kTensors, shares)), 1.0);
}

TEST(CopiesTest, TensorRanksHaveAlikeWhatIsNotCut) {
  // Ranks 0 and 2, 1 and 3 share the state of a tensor shard.
  const std::vector<RankShare> whole = {Share(0, 0, 0, true), Share(0, 0, 1, true),
                                        Share(1, 0, 0, true), Share(1, 0, 1, true)};
  EXPECT_THAT(CopiesOf(whole, DigestKind::kWeights, 0),
              ElementsAre(std::vector<CopyHolders>{{0}, {2}}, std::vector<CopyHolders>{{1}, {3}}));
  EXPECT_THAT(CopiesOf(whole, DigestKind::kWeights, 1),
              ElementsAre(std::vector<CopyHolders>{{0}, {1}, {2}, {3}}));
  EXPECT_THAT(CopiesOf(whole, DigestKind::kGradients, 1),
              ElementsAre(std::vector<CopyHolders>{{0, 2}, {1, 3}}));
  std::vector<RankShare> sliced = whole;
  for (RankShare& share : sliced) share.has_whole_weights = false;
  EXPECT_THAT(CopiesOf(sliced, DigestKind::kWeights, 0), IsEmpty());
  EXPECT_THAT(CopiesOf(sliced, DigestKind::kWeights, 1),
              ElementsAre(std::vector<CopyHolders>{{0, 2}, {1, 3}}));
  EXPECT_EQ(Covered(kTensors, sliced, ComparisonsOf(kTensors, sliced)), 0.25);
}

TEST(CopiesTest, GroupsWithAWholeStateAreComparedRankForRank) {
  const std::vector<RankShare> shares = {Share(0, 0, 0, false), Share(1, 0, 0, false),
                                         Share(0, 1, 0, false), Share(1, 1, 0, false)};
  const std::vector<CopyHolders> first = {{0}, {2}}, second = {{1}, {3}};
  for (const DigestKind kind : {DigestKind::kWeights, DigestKind::kGradients}) {
    EXPECT_THAT(CopiesOf(shares, kind, 0), ElementsAre(first, second));
  }
}

TEST(CopiesTest, Stage3OfOneGroupHasNoCopies) {
  const std::vector<RankShare> shares = {Share(0, 0, 0, false), Share(1, 0, 0, false)};
  EXPECT_THAT(ComparisonsOf(kTensors, shares), IsEmpty());
  EXPECT_EQ(Covered(kTensors, shares, {}), 0.0);
}

// Of ranks whose weights of h.0.b are these.
absl::Status Check(const std::vector<uint64_t>& digests) {
  std::vector<RankShare> shares;
  std::vector<TensorDigest> all;
  for (size_t r = 0; r < digests.size(); ++r) {
    shares.push_back(Share(static_cast<int>(r), 0, 0, true));
    for (int kind = 0; kind < kDigestKinds; ++kind) {
      all.push_back({{7, 7}});
      // Slices differ, and updated weights are not compared.
      all.push_back(kind == 0 ? TensorDigest{{1, digests[r]}} : TensorDigest{{r, r}});
    }
  }
  return CheckCopies(12, /*skipped=*/false, kTensors, ComparisonsOf(kTensors, shares), {all, 2});
}

TEST(CopiesTest, NamesWhoIsAlone) {
  EXPECT_OK(Check({5, 5, 5}));
  EXPECT_THAT(Check({5, 5, 6, 5}),
              StatusIs(kDamaged, AllOf(HasSubstr("step 12, unit \"h.0\": the weights of h.0.b"),
                                       HasSubstr("rank 2 is alone"),
                                       HasSubstr("rank 0, rank 1 and rank 3"))));
  EXPECT_THAT(Check({5, 6, 5, 8, 5}), StatusIs(kDamaged, HasSubstr("rank 1 and rank 3 are alone")));
}

// Two groups of one rank; gradients differ in their NaN, of which no bits are promised.
TEST(CopiesTest, OfASkippedStepWeightsAloneAreCompared) {
  const std::vector<RankShare> shares = {Share(0, 0, 0, false), Share(0, 1, 0, false)};
  const auto check = [&](bool skipped, uint64_t weights_of_second) {
    std::vector<TensorDigest> all;
    for (const uint64_t rank : {uint64_t{0}, uint64_t{1}}) {
      for (int kind = 0; kind < kDigestKinds; ++kind) {
        const bool is_gradient = kind == static_cast<int>(DigestKind::kGradients);
        const uint64_t weights = rank == 0 ? 5 : weights_of_second;
        for (size_t t = 0; t < kTensors.size(); ++t) {
          all.push_back({{7, is_gradient ? rank : weights}});
        }
      }
    }
    return CheckCopies(3, skipped, kTensors, ComparisonsOf(kTensors, shares), {all, 2});
  };
  EXPECT_THAT(check(false, 5), StatusIs(kDamaged, HasSubstr("the summed gradient of h.0.w")));
  EXPECT_OK(check(true, 5));
  EXPECT_THAT(check(true, 6), StatusIs(kDamaged, HasSubstr("the weights of h.0.w")));
}

TEST(CopiesTest, SaysWhereItCannotTell) {
  EXPECT_THAT(Check({5, 6}),
              StatusIs(kDamaged, AllOf(HasSubstr("rank 0 ("), HasSubstr("against rank 1 ("),
                                       HasSubstr("cannot be told"), Not(HasSubstr("alone")))));
  EXPECT_THAT(Check({5, 6, 5, 6}), StatusIs(kDamaged, HasSubstr("cannot be told")));
  EXPECT_THAT(Check({5, 6, 7}), StatusIs(kDamaged, HasSubstr("cannot be told")));
}

}  // namespace
}  // namespace brigade::digests
