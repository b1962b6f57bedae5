#include "brigade/collectives/engines/threads/thread_group.h"

#include "brigade/tests/collectives/conformance.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

class ThreadGroupConformance : public ::testing::TestWithParam<int> {};

TEST_P(ThreadGroupConformance, EveryOperationOfEveryType) {
  const RanksOptions options = {.size = GetParam()};
  Conform(options, ThreadEngines(options), InterestingCounts(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, ThreadGroupConformance, ::testing::Values(1, 2, 3, 4, 7, 8));

}  // namespace
}  // namespace brigade::collectives
