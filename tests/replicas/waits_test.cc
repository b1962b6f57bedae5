// The waits between the streams of a round, and of a Join, are needed: without one of them the race
// checker reports a race, whatever the timing.

#include <cstddef>
#include <optional>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using collectives::Rank;
using WaitPoint = OuterOptimizerTestPeer::WaitPoint;

// The number of races that are reported without that wait.
size_t RacesWithout(std::optional<WaitPoint> omitted) {
  device::RaceChecker checker;
  collectives::OnThreads({.size = 2, .race_checker = &checker}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(1, 0.5), {.period = 2, .delay = 1}, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    if (omitted.has_value()) OuterOptimizerTestPeer::OmitWait(*member->outer, *omitted);
    absl::Status status = member->outer->Join(*member->groups.between);
    for (int step = 0; step < 6 && status.ok(); ++step) {
      status = StepAlong(*member, self, 1.0f);
      status.Update(member->outer->Step());
    }
    if (!status.ok()) member->groups.between->Abort(status);
    self.AwaitOthers();
  });
  return checker.reports().size();
}

TEST(WaitsTest, ASumWaitsForTheDeltas) { EXPECT_GT(RacesWithout(WaitPoint::kDeltasMade), 0u); }

TEST(WaitsTest, AnUpdateWaitsForTheSum) { EXPECT_GT(RacesWithout(WaitPoint::kDeltasSummed), 0u); }

TEST(WaitsTest, AJoinWaitsForTheWeightsThatItSends) {
  EXPECT_GT(RacesWithout(WaitPoint::kStateMade), 0u);
}

TEST(WaitsTest, AReplicaGoesBackToWeightsThatHaveCome) {
  EXPECT_GT(RacesWithout(WaitPoint::kStateCame), 0u);
}

TEST(WaitsTest, WithAllWaitsThereAreNoRaces) { EXPECT_EQ(RacesWithout(std::nullopt), 0u); }

}  // namespace
}  // namespace brigade::replicas
