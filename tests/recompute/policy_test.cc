#include "brigade/recompute/policy.h"

#include <string>
#include <utility>

#include "brigade/tests/recompute/chains.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::recompute {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;
using Kind = Policy::Kind;

TEST(PolicyTest, AText) {
  const std::pair<const char*, Policy> texts[] = {
      {"none", {}},
      {"block", {.kind = Kind::kBlock}},
      {"selective", {.kind = Kind::kSelective}},
      {"segments:1", {.kind = Kind::kSegments, .stages_per_segment = 1}},
      {"segments:40", {.kind = Kind::kSegments, .stages_per_segment = 40}},
      {"budget:1", {.kind = Kind::kBudget, .budget_bytes = 1}},
      {"budget:9223372036854775807", {.kind = Kind::kBudget, .budget_bytes = INT64_MAX}},
  };
  for (const auto& [text, policy] : texts) {
    ASSERT_OK_AND_ASSIGN(const Policy parsed, ParsePolicy(text));
    EXPECT_EQ(parsed, policy) << text;
    EXPECT_EQ(ToString(policy), text);
  }
  EXPECT_EQ(ParsePolicy("budget:3KiB")->budget_bytes, 3 << 10);
  EXPECT_EQ(ParsePolicy("budget:3MiB")->budget_bytes, 3 << 20);
  EXPECT_EQ(ParsePolicy("budget:3GiB")->budget_bytes, int64_t{3} << 30);
}

TEST(PolicyTest, EverythingElseIsRefused) {
  for (const char* text :
       {"", "None", "blocks", "segments", "segments:", "segments:0", "segments:-1", "segments:1.5",
        "segments:2147483648", "budget:", "budget:0", "budget:-5", "budget:1GB", "budget:KiB",
        "budget:9223372036854775808", "budget:8796093022208MiB", "budget:1e9", "selective:1"}) {
    EXPECT_THAT(ParsePolicy(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::string("\"") + text + "\" is none of none, block")));
  }
}

TEST(PolicyTest, AStashIsForInputsThatAreKept) {
  EXPECT_EQ(ParseStashTier("none").value(), StashTier::kNone);
  EXPECT_EQ(ParseStashTier("host").value(), StashTier::kHost);
  EXPECT_THAT(ParseStashTier("Host"), StatusIs(absl::StatusCode::kInvalidArgument,
                                               "\"Host\" is none of none, host and file"));
  const Chain chain = EqualChain(6, UnitStage(1, 1, 1, {{4, 2}}));
  for (const char* text : {"none", "block", "selective", "segments:2", "budget:1GiB"}) {
    Policy policy = ParsePolicy(text).value();
    const absl::StatusOr<Plan> without = PlanBy(policy, chain, std::vector<int>(6));
    EXPECT_OK(without);
    policy.stash = StashTier::kHost;
    const absl::StatusOr<Plan> plan = PlanBy(policy, chain, std::vector<int>(6));
    if (policy.kind == Kind::kBlock || policy.kind == Kind::kSegments) {
      ASSERT_OK(plan);
      EXPECT_EQ(plan->operations,
                PlanStashedSegments(chain, policy.stages_per_segment)->operations);
      EXPECT_EQ(plan->time, without->time);
      EXPECT_NE(plan->operations, without->operations);
    } else {
      EXPECT_THAT(plan, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("a stash is for the inputs of recomputation by block or "
                                           "segments:K, not by ")));
    }
  }
}

TEST(PolicyTest, AChainsPlan) {
  const Chain chain = EqualChain(4, UnitStage(1, 1, 1, {{4, 2}, {2, 3}}));
  const auto time = [&](const char* text) {
    return PlanBy(ParsePolicy(text).value(), chain, {1, 1, 1, 1})->time;
  };
  // Forward 4, backward 8; again the first three; each 1 more; the first two again.
  EXPECT_EQ(time("none"), 12);
  EXPECT_EQ(time("block"), 15);
  EXPECT_EQ(time("selective"), 16);
  EXPECT_EQ(time("segments:2"), 14);
  EXPECT_EQ(time("budget:1GiB"), 12);
  EXPECT_THAT(PlanBy(ParsePolicy("budget:1").value(), chain, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("below the least")));
}

}  // namespace
}  // namespace brigade::recompute
