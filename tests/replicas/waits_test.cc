// The wait between the streams of a round is needed: without it the race checker reports a race,
// whatever the timing.

#include <cstddef>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using collectives::Rank;

// The number of races that are reported, with the wait or without it.
size_t Races(bool omit) {
  device::RaceChecker checker;
  collectives::OnThreads({.size = 2, .race_checker = &checker}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(1, 0.5), {.period = 2, .delay = 1}, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    ASSERT_OK(member->outer->Join(*member->groups.between));
    if (omit) OuterOptimizerTestPeer::OmitWait(*member->outer);
    for (int step = 0; step < 6; ++step) {
      absl::Status status = StepAlong(*member, self, 1.0f);
      status.Update(member->outer->Step());
      if (!status.ok()) break;
    }
    self.AwaitOthers();
  });
  return checker.reports().size();
}

TEST(WaitsTest, TheSumWaitsForTheDeltas) {
  EXPECT_EQ(Races(false), 0u);
  EXPECT_GT(Races(true), 0u);
}

}  // namespace
}  // namespace brigade::replicas
