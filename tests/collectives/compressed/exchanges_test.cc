// Collectives of codes over every engine.

#include "brigade/tests/collectives/compressed/exchange_suite.h"
#include "brigade/tests/collectives/compressed/power_sgd_suite.h"
#include "brigade/tests/collectives/compressed/top_k_suite.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

constexpr auto kNameOf = [](const auto& info) { return NameOf(info.param); };

CreateEngineFn EnginesOfEmulatedNccl(const RanksOptions& options) {
  EmulatedNccl::Reset();
  return NcclEngines(options);
}

const auto kOfThreads = ::testing::Values(
    Group{"threads", ThreadEngines, 1}, Group{"threads", ThreadEngines, 2},
    Group{"threads", ThreadEngines, 3}, Group{"threads", ThreadEngines, 4, {2, 2}},
    Group{"threads", ThreadEngines, 6, {2, 2, 2}}, Group{"threads", ThreadEngines, 3, {2, 1}});
const auto kOfGloo = ::testing::Values(Group{"gloo", testing::GlooEngines, 2},
                                       Group{"gloo", testing::GlooEngines, 3},
                                       Group{"gloo", testing::GlooEngines, 4, {2, 2}});
const auto kOfNccl = ::testing::Values(Group{"nccl", EnginesOfEmulatedNccl, 2},
                                       Group{"nccl", EnginesOfEmulatedNccl, 3},
                                       Group{"nccl", EnginesOfEmulatedNccl, 4, {2, 2}});

INSTANTIATE_TEST_SUITE_P(Threads, ExchangesTest, kOfThreads, kNameOf);
INSTANTIATE_TEST_SUITE_P(Gloo, ExchangesTest, kOfGloo, kNameOf);
INSTANTIATE_TEST_SUITE_P(Nccl, ExchangesTest, kOfNccl, kNameOf);
INSTANTIATE_TEST_SUITE_P(Threads, PowerSgdTest, kOfThreads, kNameOf);
INSTANTIATE_TEST_SUITE_P(Gloo, PowerSgdTest, kOfGloo, kNameOf);
INSTANTIATE_TEST_SUITE_P(Nccl, PowerSgdTest, kOfNccl, kNameOf);
INSTANTIATE_TEST_SUITE_P(Threads, TopKMeanTest, kOfThreads, kNameOf);
INSTANTIATE_TEST_SUITE_P(Gloo, TopKMeanTest, kOfGloo, kNameOf);
INSTANTIATE_TEST_SUITE_P(Nccl, TopKMeanTest, kOfNccl, kNameOf);

}  // namespace
}  // namespace brigade::collectives
