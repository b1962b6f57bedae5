// With the optimizer state, or a part of it, or the parameters too on the host or in files: the
// specification's bits over 50 steps, in every stage that has them there. With a delayed update,
// those of its own.

#include <vector>

#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

class GoldenOffloadTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenOffloadTest, GivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

// Parameters are elsewhere in stage 3, sums at the boundary are of stages 0 and 1.
bool Exists(const GoldenCase& c) {
  return c.offload.parameters == device::Tier::kDevice ||
         c.accumulation != Accumulation::kAtBoundary;
}

std::vector<GoldenCase> OffloadCases() {
  std::vector<GoldenCase> cases;
  for (GoldenCase c : GoldenCases()) {
    for (const OffloadOptions& offload : Offloads()) {
      c.offload = offload;
      if (Exists(c)) cases.push_back(c);
    }
  }
  return cases;
}

std::vector<GoldenCase> DelayedCases() {
  std::vector<GoldenCase> cases;
  for (GoldenCase c : GoldenCases()) {
    if (c.ranks != 2 && c.ranks != 3) continue;
    for (const OffloadOptions& offload : Offloads()) {
      if (offload.host_share != 1 || offload.file_parameters()) continue;
      c.offload = offload;
      c.offload.delay_update = true;
      c.offload.delay_warm_up = c.ranks == 2 ? 0 : 10;
      if (!Exists(c)) continue;
      c.reload_at = -1;
      cases.push_back(c);
      // In the warm-up, and behind it.
      c.reload_at = offload.host_parameters() ? 5 : 21;
      cases.push_back(c);
    }
  }
  return cases;
}

const auto name_of = [](const auto& info) { return ToString(info.param); };
INSTANTIATE_TEST_SUITE_P(Cases, GoldenOffloadTest, ::testing::ValuesIn(OffloadCases()), name_of);
INSTANTIATE_TEST_SUITE_P(Delayed, GoldenOffloadTest, ::testing::ValuesIn(DelayedCases()), name_of);

}  // namespace
}  // namespace brigade::zero
