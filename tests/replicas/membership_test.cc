// Replicas that die, leave and join.

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;

constexpr OuterOptions kOptions = {.period = 2, .lr = 0.5, .momentum = 0.5};

absl::Status Steps(Member& member, Rank& self, int count, float gradient) {
  for (int step = 0; step < count; ++step) {
    BRIGADE_RETURN_IF_ERROR(StepAlong(member, self, gradient));
    BRIGADE_RETURN_IF_ERROR(member.outer->Step());
  }
  return absl::OkStatus();
}

// What is left of the replicas without the last one goes on.
absl::Status GoOnWithoutLast(Member& member) {
  const int last = member.groups.between->size() - 1;
  BRIGADE_ASSIGN_OR_RETURN(auto fewer, member.groups.between->Shrink({last}));
  // Before what it may read.
  member.groups.between = std::move(fewer);
  return member.outer->Join(*member.groups.between);
}

enum class Death { kBetweenRounds, kInTheRoundsStep, kBehindItsStep };

void ThreeOfWhichOneDies(int stage, Death death) {
  OnThreads({.size = 6}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(stage, 1.0), kOptions, 3, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    ASSERT_OK(member->outer->Join(*member->groups.between));
    const float gradient = static_cast<float>(member->replica + 1);
    ASSERT_OK(Steps(*member, self, 2, gradient));
    // d = mean of 2, 4, 6; v = 4; w0 = 1 - 0.5 (4 + 2).
    EXPECT_THAT(Masters(*member->zero).value(), Each(-2.0f));
    if (member->replica == 2) {
      if (death == Death::kBetweenRounds) return;
      ASSERT_OK(StepAlong(*member, self, gradient));
      ASSERT_OK(member->outer->Step());
      if (death == Death::kInTheRoundsStep) return;
      // With a sum of its own that the others may be in.
      ASSERT_OK(StepAlong(*member, self, gradient));
      ASSERT_OK(self.stream->Synchronize());
      return;
    }
    ASSERT_OK(Steps(*member, self, 1, gradient));
    ASSERT_OK(StepAlong(*member, self, gradient));
    EXPECT_THAT(Masters(*member->zero).value(), Each(-2.0f - 2 * gradient));
    const absl::Status failed = member->outer->Step();
    EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
    EXPECT_EQ(member->outer->last_round(), 2);
    EXPECT_THAT(member->outer->Step(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                HasSubstr("the last round has failed")));
    ASSERT_OK(GoOnWithoutLast(*member));
    EXPECT_EQ(member->outer->steps(), 4);
    EXPECT_THAT(Masters(*member->zero).value(), Each(-2.0f));
    ASSERT_OK(Steps(*member, self, 2, gradient));
    // d = mean of 2, 4; v = 2 + 3; w0 = -2 - 0.5 (3 + 2.5).
    EXPECT_THAT(Masters(*member->zero).value(), Each(-4.75f));
    self.AwaitOthers();
  });
}

class MembershipTest : public ::testing::TestWithParam<int> {};

TEST_P(MembershipTest, AReplicaThatDiesLeavesTheLastOuterWeights) {
  for (const Death death :
       {Death::kBetweenRounds, Death::kInTheRoundsStep, Death::kBehindItsStep}) {
    SCOPED_TRACE(static_cast<int>(death));
    ThreeOfWhichOneDies(GetParam(), death);
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, MembershipTest, ::testing::Range(0, zero::kStages));

// A process that is killed, in the step of a round.
TEST(MembershipTest, AProcessThatIsKilledLeavesTheLastOuterWeights) {
  using collectives::testing::Arrays;
  using collectives::testing::Fault;
  constexpr int kKilled = 2;
  const auto reports = collectives::testing::OnProcesses(
      3, absl::Seconds(20), [&](Rank& self, Arrays&, Fault& fault) -> absl::Status {
        BRIGADE_ASSIGN_OR_RETURN(Member member,
                                 CreateMember(Lines(2, 300), Plain(2, 1.0), kOptions, 3, self));
        BRIGADE_RETURN_IF_ERROR(SetAll(member, 1.0f));
        BRIGADE_RETURN_IF_ERROR(member.outer->Join(*member.groups.between));
        const float gradient = static_cast<float>(self.rank + 1);
        BRIGADE_RETURN_IF_ERROR(Steps(member, self, 3, gradient));
        BRIGADE_RETURN_IF_ERROR(StepAlong(member, self, gradient));
        if (self.rank == kKilled) {
          BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
          fault.Begin();
          kill(getpid(), SIGKILL);
        }
        const absl::Status failed = member.outer->Step();
        if (failed.ok()) return absl::InternalError("the round had no error");
        BRIGADE_RETURN_IF_ERROR(GoOnWithoutLast(member));
        BRIGADE_RETURN_IF_ERROR(Steps(member, self, 2, gradient));
        BRIGADE_ASSIGN_OR_RETURN(const std::vector<float> now, Masters(*member.zero));
        if (now[0] == -4.75f && now.back() == -4.75f) return absl::OkStatus();
        return absl::InternalError(std::to_string(now[0]));
      });
  collectives::testing::ExpectAllOk(reports, kKilled);
}

// Of one rank each. The third one joins behind a round, with the others' moments; then the first
// one leaves.
TEST(MembershipTest, AReplicaJoinsAndAnotherLeaves) {
  OnThreads({.size = 3}, [](Rank& self) {
    zero::ZeroOptions inner = Plain(1, 1.0);
    inner.optimizer.groups[0].momentum = 0.5;
    auto member = CreateMember(Lines(2, 300), inner, kOptions, 3, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, self.rank == 2 ? 77.0f : 1.0f));
    const bool is_first = self.rank < 2;
    auto two = self.communicator->Split(is_first ? 0 : -1, 0);
    ASSERT_OK(two);
    if (is_first) {
      ASSERT_OK(member->outer->Join(**two));
      ASSERT_OK(Steps(*member, self, 4, 1.0f));
    }
    ASSERT_OK(member->outer->Join(*member->groups.between));
    two->reset();
    EXPECT_EQ(member->outer->steps(), 4);
    EXPECT_EQ(member->outer->last_round(), 4);
    ASSERT_OK(Steps(*member, self, 2, 1.0f));
    const std::vector<float> now = Masters(*member->zero).value();
    EXPECT_THAT(now, Each(now[0]));
    const auto state = zero::Capture(*member->zero, self);
    ASSERT_OK(state);
    EXPECT_EQ(state->step.step, 6);
    // All have the same moments, and weights far from where the third one began.
    EXPECT_LT(now[0], 0.0f);
    auto rest = member->groups.between->Split(self.rank == 0 ? -1 : 0, 0);
    ASSERT_OK(rest);
    if (self.rank > 0) {
      ASSERT_OK(member->outer->Join(**rest));
      ASSERT_OK(Steps(*member, self, 2, 1.0f));
      EXPECT_EQ(member->outer->rounds(), self.rank == 1 ? 4 : 2);
    }
    self.AwaitOthers();
    member->outer.reset();
  });
}

// In the middle of a period others keep what they have done.
TEST(MembershipTest, AJoinInTheMiddleOfAPeriodLosesNoStep) {
  OnThreads({.size = 2}, [](Rank& self) {
    auto member = CreateMember(Lines(1, 300), Plain(1, 1.0), kOptions, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    auto alone = self.communicator->Split(self.rank == 0 ? 0 : -1, 0);
    ASSERT_OK(alone);
    if (self.rank == 0) {
      ASSERT_OK(member->outer->Join(**alone));
      ASSERT_OK(Steps(*member, self, 3, 1.0f));
    }
    ASSERT_OK(member->outer->Join(*member->groups.between));
    alone->reset();
    // w0 = 1 - 0.5 (2 + 1).
    EXPECT_THAT(Masters(*member->zero).value(), Each(self.rank == 0 ? -1.5f : -0.5f));
    ASSERT_OK(Steps(*member, self, 1, 1.0f));
    // d = mean of 2, 1; v = 1 + 1.5; w0 = -0.5 - 0.5 (1.5 + 1.25).
    EXPECT_THAT(Masters(*member->zero).value(), Each(FloatNear(-1.875f, 1e-6f)));
    self.AwaitOthers();
  });
}

TEST(MembershipTest, ReplicasThatDifferAreAnErrorOnAll) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  OnThreads({.size = 2}, [](Rank& self) {
    const OuterOptions options = {.period = self.rank == 0 ? 2 : 3};
    auto member = CreateMember(Lines(1, 300), Plain(1, 1.0), options, 2, self);
    ASSERT_OK(member);
    EXPECT_THAT(member->outer->Join(*member->groups.between),
                StatusIs(kInvalid, HasSubstr("rank 1 has replicas of period 3")));
    EXPECT_THAT(member->outer->Step(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                "replicas: Join comes before the first step"));
    self.AwaitOthers();
  });
  OnThreads({.size = 2}, [](Rank& self) {
    auto member = CreateMember(Lines(1, 300 + self.rank), Plain(1, 1.0), {}, 2, self);
    ASSERT_OK(member);
    EXPECT_THAT(member->outer->Join(*member->groups.between),
                StatusIs(kInvalid, HasSubstr("line0.w [300]")));
    self.AwaitOthers();
  });
}

TEST(MembershipTest, RanksThatDoNotDivideAreAnErrorOnAll) {
  OnThreads({.size = 3}, [](Rank& self) {
    EXPECT_THAT(
        ReplicaGroups::Create(*self.communicator, 2),
        StatusIs(absl::StatusCode::kInvalidArgument, "replicas: 2 replicas do not divide 3 ranks"));
  });
}

}  // namespace
}  // namespace brigade::replicas
