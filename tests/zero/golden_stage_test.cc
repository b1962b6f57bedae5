// A stage of a pipeline gives the specification's bits: with tied parameters whose parts of a
// gradient are apart, in chunks whose micro-batches take turns, and in runs.

#include <utility>
#include <vector>

#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using precision::DType;

class GoldenStageTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenStageTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

// The toy's tied units are the first and the last one.
void AppendVariants(GoldenCase c, std::vector<GoldenCase>& cases) {
  c.tied_apart = true;
  if (!c.offload.enabled()) cases.push_back(c);
  c.chunks = {0, 2, 4};
  cases.push_back(c);
  c.has_runs = true;
  cases.push_back(c);
  // Without tied units in several chunks.
  c.tied_apart = false;
  c.chunks = {0};
  cases.push_back(c);
}

std::vector<GoldenCase> StageCases() {
  constexpr auto kAdamW = optim::OptimizerKind::kAdamW;
  constexpr auto kEvery = Accumulation::kEveryMicroBatch, kBoundary = Accumulation::kAtBoundary;
  std::vector<GoldenCase> cases;
  for (const auto& [micro_batches, accumulation] :
       {std::pair(1, kEvery), std::pair(3, kEvery), std::pair(3, kBoundary)}) {
    for (const int ranks : {1, 2, 3}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        GoldenCase c = {ranks, dtype, kAdamW, micro_batches, accumulation};
        AppendVariants(c, cases);
        c.communication_dtype = DType::kFloat16;
        AppendVariants(c, cases);
      }
    }
    for (const OffloadOptions& offload : Offloads()) {
      GoldenCase c = {2, DType::kBFloat16, kAdamW, micro_batches, accumulation};
      c.offload = offload;
      // Parameters are elsewhere in stage 3, sums at the boundary are of stages 0 and 1.
      if (offload.parameters == device::Tier::kDevice || accumulation == kEvery) {
        AppendVariants(c, cases);
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenStageTest, ::testing::ValuesIn(StageCases()),
                         [](const auto& info) { return ToString(info.param); });

}  // namespace
}  // namespace brigade::zero
