// A stage of a pipeline gives the specification's bits: with tied parameters whose parts of a
// gradient are apart, in chunks whose micro-batches take turns, and in runs.

#include <optional>
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
std::vector<GoldenCase> StageCases() {
  std::vector<OffloadOptions> offloads = Offloads();
  offloads.insert(offloads.begin(), OffloadOptions());
  std::vector<GoldenCase> cases;
  for (const int ranks : {1, 2, 3}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const int micro_batches : {1, 3}) {
        for (const auto accumulation : {Accumulation::kEveryMicroBatch, Accumulation::kAtBoundary}) {
          for (const std::optional<DType> wire : {std::optional<DType>(), {DType::kFloat16}}) {
            for (const OffloadOptions& offload : offloads) {
              GoldenCase c = {ranks, dtype, optim::OptimizerKind::kAdamW, micro_batches,
                              accumulation};
              c.communication_dtype = wire;
              c.offload = offload;
              if (!Validate(OptionsOf(c, offload.parameters == device::Tier::kDevice ? 1 : 3))
                       .ok()) {
                continue;
              }
              c.tied_apart = true;
              cases.push_back(c);
              c.chunks = {0, 2, 4};
              cases.push_back(c);
              c.has_runs = true;
              cases.push_back(c);
              // Without tied units in several chunks.
              c.tied_apart = false;
              c.chunks = {0};
              cases.push_back(c);
            }
          }
        }
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenStageTest, ::testing::ValuesIn(StageCases()),
                         [](const auto& info) { return ToString(info.param); });

}  // namespace
}  // namespace brigade::zero
