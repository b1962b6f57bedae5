// Collectives of codes over every engine.

#include "brigade/tests/collectives/compressed/exchange_suite.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

constexpr auto kNameOf = [](const auto& info) { return NameOf(info.param); };

INSTANTIATE_TEST_SUITE_P(Threads, ExchangesTest,
                         ::testing::Values(Group{"threads", ThreadEngines, 1},
                                           Group{"threads", ThreadEngines, 2},
                                           Group{"threads", ThreadEngines, 3},
                                           Group{"threads", ThreadEngines, 4, {2, 2}},
                                           Group{"threads", ThreadEngines, 6, {2, 2, 2}},
                                           Group{"threads", ThreadEngines, 3, {2, 1}}),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(Gloo, ExchangesTest,
                         ::testing::Values(Group{"gloo", testing::GlooEngines, 2},
                                           Group{"gloo", testing::GlooEngines, 3},
                                           Group{"gloo", testing::GlooEngines, 4, {2, 2}}),
                         kNameOf);

CreateEngineFn EnginesOfEmulatedNccl(const RanksOptions& options) {
  EmulatedNccl::Reset();
  return NcclEngines(options);
}
INSTANTIATE_TEST_SUITE_P(Nccl, ExchangesTest,
                         ::testing::Values(Group{"nccl", EnginesOfEmulatedNccl, 2},
                                           Group{"nccl", EnginesOfEmulatedNccl, 3},
                                           Group{"nccl", EnginesOfEmulatedNccl, 4, {2, 2}}),
                         kNameOf);

}  // namespace
}  // namespace brigade::collectives
