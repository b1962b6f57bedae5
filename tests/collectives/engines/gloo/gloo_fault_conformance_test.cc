// Ranks over Gloo, when one of them does something else than the others. They are threads here;
// processes are in gloo_engine_fault_test.

#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/fault_conformance.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

class GlooFaults : public ::testing::TestWithParam<Action> {};

TEST_P(GlooFaults, WhenRanksDiffer) { ConformWhenRanksDiffer(GetParam(), {GlooEngines}); }

INSTANTIATE_TEST_SUITE_P(Rank0, GlooFaults, ::testing::ValuesIn(AllActions()),
                         [](const auto& info) { return Name(info.param); });

TEST(GlooFaultConformanceTest, WhenArgumentsDiffer) { ConformWhenArgumentsDiffer({GlooEngines}); }

TEST(GlooFaultConformanceTest, WhenAStreamHangs) { ConformWhenAStreamHangs({GlooEngines}); }

TEST(GlooFaultConformanceTest, WhenARankHasLeft) { ConformWhenARankHasLeft({GlooEngines}); }

}  // namespace
}  // namespace brigade::collectives::testing
