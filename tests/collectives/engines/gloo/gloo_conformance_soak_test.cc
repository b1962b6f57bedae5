// What thread_group_test does in every run, over Gloo: takes a minute or more.

#include "brigade/tests/collectives/conformance.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

class GlooConformanceSoak : public ::testing::TestWithParam<int> {};

TEST_P(GlooConformanceSoak, EveryOperationOfEveryTypeAndCount) {
  const RanksOptions options = {.size = GetParam()};
  Conform(options, GlooEngines(options), InterestingCounts(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, GlooConformanceSoak, ::testing::Range(1, 9));

}  // namespace
}  // namespace brigade::collectives::testing
