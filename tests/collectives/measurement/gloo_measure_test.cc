#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/measurement/measured_topology.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

TEST(GlooMeasureTopologyTest, AllRanksGetTheSameSaneFigures) {
  const RanksOptions options = {.size = 5};
  OnRanks(options, GlooEngines(options), [](Rank& self) {
    ExpectMeasuredTopology(self, {3, 3, 8, 8, 5}, {2, 2, 1});
  });
}

}  // namespace
}  // namespace brigade::collectives::testing
