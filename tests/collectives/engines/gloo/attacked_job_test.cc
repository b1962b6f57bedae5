// What strangers do to real jobs: nothing. Each attack in each phase, at every open port of every
// rank, leaves the job the bits that it has without.

#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/engines/gloo/attacked_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#ifndef BRIGADE_ROUNDS
#define BRIGADE_ROUNDS 1
#endif

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;

void ExpectWell(const AttackedJob& job) {
  for (size_t rank = 0; rank < job.reports.size(); ++rank) {
    if (rank == kLostRank) {
      EXPECT_THAT(job.reports[rank].status, StatusIs(absl::StatusCode::kAborted));
    } else {
      EXPECT_OK(job.reports[rank].status) << "rank " << rank;
    }
  }
}

// Of a job that nobody attacked.
const AttackedJob& Undisturbed() {
  static const auto& job = *new AttackedJob(RunJob({}));
  return job;
}

class AttackedJobTest : public ::testing::TestWithParam<std::tuple<Phase, Attack>> {};

TEST_P(AttackedJobTest, EndsWellWithTheBitsOfOneThatNobodyAttacks) {
  const auto& [phase, attack] = GetParam();
  const AttackedJob& wanted = Undisturbed();
  ExpectWell(wanted);
  for (int round = 0; round < BRIGADE_ROUNDS; ++round) {
    const AttackedJob job = RunJob({{phase, attack, wanted.recorded}});
    ExpectWell(job);
    EXPECT_EQ(job.digests, wanted.digests);
    // Before the store, and before and after the ranks tell where they listen.
    const int places = phase == Phase::kTraining ? 1 : phase == Phase::kSplit ? 2 : 3;
    EXPECT_EQ(job.places, places);
    EXPECT_GE(job.ports, places * (kRanks - 1));
    std::printf("%d ports, %d connections\n", job.ports, static_cast<int>(job.connections));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Attacks, AttackedJobTest,
                         ::testing::Combine(::testing::ValuesIn(kPhases),
                                            ::testing::ValuesIn(AttacksOnJobs())),
                         [](const auto& info) {
                           return absl::StrCat(Name(std::get<0>(info.param)), "_",
                                               std::get<1>(info.param).name);
                         });

}  // namespace
}  // namespace brigade::collectives::testing
