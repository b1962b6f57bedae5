#include "brigade/tests/collectives/steady_state.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

TEST(NoAllocationTest, SteadyStateOfThreads) {
  int64_t before = 0, after = 0;
  RunSteadyState(
      3, ThreadEngines({.size = 3}), [&] { before = brigade::testing::CountedAllocations(); },
      [&] { after = brigade::testing::CountedAllocations(); });
  EXPECT_EQ(after - before, 0);
  EXPECT_GT(before, 0);  // the counter counts
}

}  // namespace
}  // namespace brigade::collectives
