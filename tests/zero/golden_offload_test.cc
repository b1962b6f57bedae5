// With the optimizer state, or a part of it, or the parameters too on the host: the specification's
// bits over 50 steps, in every stage that has them there.

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

class GoldenOffloadTest : public ::testing::TestWithParam<std::tuple<GoldenCase, OffloadOptions>> {
};

TEST_P(GoldenOffloadTest, GivesTheSpecificationsBits) {
  const auto& [golden_case, offload] = GetParam();
  if (offload.host_parameters() && golden_case.accumulation == Accumulation::kAtBoundary) {
    GTEST_SKIP() << "parameters on the host are of stage 3, sums at the boundary of stages 0 and 1";
  }
  ExpectTheSpecificationsBits(golden_case, device::Cpu(), /*on_copies=*/false, offload);
}

std::string NameOf(const OffloadOptions& offload) {
  return absl::StrCat("host_share_", static_cast<int>(100 * offload.host_share),
                      offload.host_parameters() ? "_parameters" : "");
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenOffloadTest,
                         ::testing::Combine(::testing::ValuesIn(GoldenCases()),
                                            ::testing::ValuesIn(Offloads())),
                         [](const auto& info) {
                           return absl::StrCat(ToString(std::get<0>(info.param)), "_",
                                               NameOf(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace brigade::zero
