// Collectives of codes between ranks that share a GPU.

#include "brigade/tests/collectives/compressed/exchange_suite.h"
#include "brigade/tests/collectives/compressed/power_sgd_suite.h"
#include "brigade/tests/collectives/compressed/top_k_suite.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

constexpr auto kNameOf = [](const auto& info) { return NameOf(info.param); };
const auto kGroups = ::testing::Values(Group{"threads", ThreadEngines, 2, {}, device::Cuda()},
                                       Group{"threads", ThreadEngines, 4, {2, 2}, device::Cuda()});

INSTANTIATE_TEST_SUITE_P(Gpu, ExchangesTest, kGroups, kNameOf);
INSTANTIATE_TEST_SUITE_P(Gpu, PowerSgdTest, kGroups, kNameOf);
INSTANTIATE_TEST_SUITE_P(Gpu, TopKMeanTest, kGroups, kNameOf);

}  // namespace
}  // namespace brigade::collectives
