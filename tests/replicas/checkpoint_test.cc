// Outer weights and momentum in checkpoints: saved by replicas of two ranks, loaded by replicas of
// one, in another stage.

#include <string>
#include <vector>

#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/loader.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using collectives::OnThreads;
using collectives::Rank;

constexpr OuterOptions kOptions = {.period = 3};

std::string FolderOf(int replica) {
  return ::testing::TempDir() + "/replica" + std::to_string(replica);
}

float GradientOf(int replica) { return replica == 0 ? 1.0f : 3.0f; }

TEST(ReplicaCheckpointTest, OtherRanksGoOnInTheMiddleOfAPeriod) {
  std::vector<float> wanted;
  OnThreads({.size = 4}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(2, 0.25), kOptions, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    auto saver = checkpoint::Saver::Create({.root = FolderOf(member->replica)}, *member->zero,
                                           *member->groups.inside, *self.context);
    ASSERT_OK(saver);
    ASSERT_OK(member->outer->Join(*member->groups.between));
    for (int step = 1; step <= 9; ++step) {
      ASSERT_OK(StepAlong(*member, self, GradientOf(member->replica)));
      ASSERT_OK(member->outer->Step());
      if (step != 4) continue;
      ASSERT_OK((*saver)->Begin({}));
      ASSERT_OK((*saver)->Wait());
    }
    const std::vector<float> now = Masters(*member->zero).value();
    if (self.rank == 0) wanted = now;
    self.AwaitOthers();
    EXPECT_EQ(now, wanted);
  });
  OnThreads({.size = 2}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(3, 0.25), kOptions, 2, self);
    ASSERT_OK(member);
    const auto latest = checkpoint::FindLatest(FolderOf(self.rank), *member->groups.inside);
    ASSERT_OK(latest);
    ASSERT_EQ(**latest, 4);
    const auto state = checkpoint::Load(checkpoint::CheckpointPath(FolderOf(self.rank), 4), {},
                                        *member->zero, *member->groups.inside);
    ASSERT_OK(state);
    member->outer->Resume(state->iteration);
    ASSERT_OK(member->outer->Join(*member->groups.between));
    for (int step = 5; step <= 9; ++step) {
      ASSERT_OK(StepAlong(*member, self, GradientOf(self.rank)));
      ASSERT_OK(member->outer->Step());
    }
    EXPECT_EQ(Masters(*member->zero).value(), wanted);
    self.AwaitOthers();
  });
}

TEST(ReplicaCheckpointTest, ReplicasThatResumeAtDifferentStepsAreAnErrorOnAll) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(1, 0.25), kOptions, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    member->outer->Resume(4 + self.rank);
    EXPECT_THAT(member->outer->Join(*member->groups.between),
                ::brigade::testing::StatusIs(
                    absl::StatusCode::kInvalidArgument,
                    "replicas: replica 0 comes after step 4, replica 1 after step 5"));
    self.AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::replicas
