// Answers that are known without a program.

#include <vector>

#include "brigade/replicas/outer_optimizer.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using collectives::OnThreads;
using collectives::Rank;
using ::testing::Each;
using ::testing::FloatNear;

TEST(KnownAnswersTest, OneReplicaMovesBeyondItsOwnSteps) {
  OnThreads({.size = 1}, [](Rank& self) {
    auto member = CreateMember(Lines(1, 5), Plain(2, 0.5), {.period = 2}, 1, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    ASSERT_OK(member->outer->Join(*member->groups.between));
    for (const float wanted : {-0.33f, -2.227f, -4.6343f}) {
      for (int step = 0; step < 2; ++step) {
        ASSERT_OK(StepAlong(*member, self, 1.0f));
        ASSERT_OK(member->outer->Step());
      }
      EXPECT_THAT(Masters(*member->zero).value(), Each(FloatNear(wanted, 1e-5f)));
    }
    EXPECT_EQ(member->outer->rounds(), 3);
    EXPECT_EQ(member->outer->steps(), 6);
  });
}

TEST(KnownAnswersTest, TwoReplicasMoveByTheirMean) {
  for (int stage = 0; stage < zero::kStages; ++stage) {
    SCOPED_TRACE(stage);
    OnThreads({.size = 4}, [&](Rank& self) {
      auto member = CreateMember(Lines(2, 300), Plain(stage, 1.0), {.period = 1}, 2, self);
      ASSERT_OK(member);
      ASSERT_OK(SetAll(*member, 0.0f));
      ASSERT_OK(member->outer->Join(*member->groups.between));
      for (const float wanted : {-2.66f, -6.454f}) {
        ASSERT_OK(StepAlong(*member, self, member->replica == 0 ? 1.0f : 3.0f));
        ASSERT_OK(member->outer->Step());
        EXPECT_THAT(Masters(*member->zero).value(), Each(FloatNear(wanted, 1e-5f)));
      }
      self.AwaitOthers();
    });
  }
}

TEST(KnownAnswersTest, TwoFragmentsHaveTheirRoundsHalfAPeriodApart) {
  OnThreads({.size = 2}, [](Rank& self) {
    const OuterOptions options = {.period = 6, .lr = 2.0, .momentum = 0, .fragments = 2};
    auto member = CreateMember(Lines(2, 100), Plain(1, 1.0), options, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    ASSERT_OK(member->outer->Join(*member->groups.between));
    for (int step = 1; step <= 6; ++step) {
      ASSERT_OK(StepAlong(*member, self, 2.0f));
      ASSERT_OK(member->outer->Step());
      const std::vector<float> now = Masters(*member->zero).value();
      // Buckets, and fragments with them, begin with the last unit.
      const std::vector<float> second(now.begin(), now.begin() + 100),
          first(now.begin() + 100, now.end());
      if (step == 3) {
        EXPECT_THAT(first, Each(-11.0f));
        EXPECT_THAT(second, Each(-5.0f));
      }
      if (step == 6) {
        EXPECT_THAT(first, Each(-17.0f));
        EXPECT_THAT(second, Each(-23.0f));
      }
    }
    self.AwaitOthers();
  });
}

// Gradients and rates that add up exactly.
TEST(KnownAnswersTest, ARoundOfOneStepAtRateOneIsDataParallelism) {
  for (int stage = 0; stage < zero::kStages; ++stage) {
    SCOPED_TRACE(stage);
    std::vector<float> in_parallel;
    const auto gradient_of = [](int rank, int step) {
      return static_cast<float>((rank * 5 + step * 3) % 7 - 3);
    };
    for (const int replicas : {1, 2, 4}) {
      OnThreads({.size = 4}, [&](Rank& self) {
        const OuterOptions options = {.period = 1, .lr = 1.0, .momentum = 0};
        auto member = CreateMember(Lines(2, 300), Plain(stage, 0.125), options, replicas, self);
        ASSERT_OK(member);
        ASSERT_OK(SetAll(*member, 2.0f));
        ASSERT_OK(member->outer->Join(*member->groups.between));
        for (int step = 0; step < 9; ++step) {
          ASSERT_OK(StepAlong(*member, self, gradient_of(self.rank, step)));
          ASSERT_OK(member->outer->Step());
        }
        const std::vector<float> now = Masters(*member->zero).value();
        if (self.rank == 0 && replicas == 1) in_parallel = now;
        self.AwaitOthers();
        EXPECT_EQ(now, in_parallel) << replicas << " replicas";
      });
    }
  }
}

// The first steps, and a momentum inside, which is linear too.
TEST(KnownAnswersTest, TheFirstStepsOfPostLocalSgdAreDataParallelism) {
  std::vector<float> in_parallel;
  for (const int replicas : {1, 2}) {
    OnThreads({.size = 2}, [&](Rank& self) {
      zero::ZeroOptions inner = Plain(2, 0.125);
      inner.optimizer.groups[0].momentum = 0.5;
      const OuterOptions options = {.period = 100, .lr = 1.0, .momentum = 0, .start_step = 6};
      auto member = CreateMember(Lines(2, 300), inner, options, replicas, self);
      ASSERT_OK(member);
      ASSERT_OK(SetAll(*member, 2.0f));
      ASSERT_OK(member->outer->Join(*member->groups.between));
      for (int step = 0; step < 6; ++step) {
        ASSERT_OK(StepAlong(*member, self, self.rank == 0 ? 1.0f : -3.0f));
        ASSERT_OK(member->outer->Step());
      }
      const std::vector<float> now = Masters(*member->zero).value();
      if (self.rank == 0 && replicas == 1) in_parallel = now;
      self.AwaitOthers();
      EXPECT_EQ(now, in_parallel);
      EXPECT_EQ(member->outer->rounds(), 6);
      // And then each by itself.
      ASSERT_OK(StepAlong(*member, self, self.rank == 0 ? 1.0f : -3.0f));
      ASSERT_OK(member->outer->Step());
      EXPECT_EQ(member->outer->rounds(), 6);
      self.AwaitOthers();
    });
  }
}

}  // namespace
}  // namespace brigade::replicas
