// Every stage gives the specification's bits over 50 steps: parameters, loss scales and gradient
// norms.

#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

class GoldenTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

// What ranks on a GPU do: tests/zero/golden_gpu_test.cc.
TEST(GoldenOnCopiesTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits({.ranks = 4, .micro_batches = 3}, device::Cpu(), /*on_copies=*/true);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, ::testing::ValuesIn(GoldenCases()),
                         [](const auto& info) { return ToString(info.param); });

}  // namespace
}  // namespace brigade::zero
