#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/steady_state.h"
#include "brigade/tests/testing/counted_allocations.h"

namespace brigade::collectives {
namespace {

TEST_F(NcclTest, SteadyStateAllocatesNothing) {
  int64_t before = 0, after = 0;
  RunSteadyState(
      3, NcclEngines({.size = 3}), [&] { before = brigade::testing::CountedAllocations(); },
      [&] { after = brigade::testing::CountedAllocations(); });
  EXPECT_EQ(after - before, 0);
  EXPECT_GT(before, 0);  // the counter counts
}

}  // namespace
}  // namespace brigade::collectives
