#include "brigade/collectives/engines/threads/thread_group.h"

#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/conformance.h"
#include "brigade/tests/testing/sanitizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

class ThreadGroupConformance : public ::testing::TestWithParam<int> {};

TEST_P(ThreadGroupConformance, EveryOperationOfEveryType) {
  const RanksOptions options = {.size = GetParam()};
  Conform(options, ThreadEngines(options), InterestingCounts(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, ThreadGroupConformance, ::testing::ValuesIn(WorldSizes()));

TEST(ThreadGroupTest, EveryCallOnNodes) {
  for (const std::vector<int>& nodes :
       {std::vector<int>{2, 2}, {3, 3}, {2, 2, 2}, {2, 2, 2, 2}, {1, 1, 1}, {3}}) {
    device::RaceChecker checker;
    RanksOptions options = {.size = 0, .race_checker = &checker, .ranks_of_node = nodes};
    for (const int ranks : nodes) options.size += ranks;
    if (testing::kSanitizer && options.size > 4) continue;
    ConformOnNodes(options, ThreadEngines(options), {0, 63, 1003});
    EXPECT_THAT(checker.reports(), ::testing::IsEmpty());
  }
}

TEST(ThreadGroupTest, RunsInRegisteredMemory) {
  ConformRegistration({.size = 3}, ThreadEngines({.size = 3}));
}

TEST(ThreadGroupTest, SendsAndAllocatesWhatIsSaidBeforehand) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 2}, {2, 2, 2}}) {
    RanksOptions options = {.size = 0, .ranks_of_node = nodes};
    for (const int ranks : nodes) options.size += ranks;
    ConformTrafficAndMemory(options, ThreadEngines(options), EngineKind::kThreads);
  }
}

}  // namespace
}  // namespace brigade::collectives
