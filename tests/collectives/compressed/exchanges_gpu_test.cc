// Collectives of codes between ranks that share a GPU.

#include "brigade/tests/collectives/compressed/exchange_suite.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Gpu, ExchangesTest,
    ::testing::Values(Group{"threads", ThreadEngines, 2, {}, device::Cuda()},
                      Group{"threads", ThreadEngines, 4, {2, 2}, device::Cuda()}),
    [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace brigade::collectives
