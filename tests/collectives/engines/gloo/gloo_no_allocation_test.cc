// What we add to Gloo's own allocations: nothing. collectives/engines/gloo/README.md says where
// Gloo makes its own.

#include <optional>

#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/steady_state.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

TEST(GlooNoAllocationTest, SteadyStateAddsNoneToThoseOfGloo) {
  std::optional<brigade::testing::AllocationsByLibrary> allocations;
  RunSteadyState(
      3, GlooEngines({.size = 3}), [&] { allocations.emplace("libgloo."); },
      [&] {
        EXPECT_EQ(allocations->outside(), 0);
        EXPECT_GT(allocations->inside(), 0);  // the counter counts
        allocations.reset();
      });
}

}  // namespace
}  // namespace brigade::collectives::testing
