// Every stage gives the specification's bits over 50 steps: parameters, loss scales and gradient
// norms.

#include <vector>

#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using optim::OptimizerKind;
using precision::DType;

class GoldenTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

// What ranks on a GPU do: tests/zero/golden_gpu_test.cc.
TEST(GoldenOnCopiesTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits({.ranks = 4, .micro_batches = 3}, device::Cpu(), /*on_copies=*/true);
}

std::vector<GoldenCase> Cases() {
  std::vector<GoldenCase> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
        cases.push_back({ranks, dtype, kind, 1, Accumulation::kEveryMicroBatch});
        cases.push_back({ranks, dtype, kind, 3, Accumulation::kEveryMicroBatch});
        cases.push_back({ranks, dtype, kind, 3, Accumulation::kAtBoundary});
      }
    }
  }
  // Gradients of each type over a wire of each type.
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const DType wire : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      GoldenCase c = {3, dtype, OptimizerKind::kAdamW};
      c.communication_dtype = wire;
      if (wire != dtype) {
        cases.push_back(c);
        c.micro_batches = 2;
        cases.push_back(c);
      }
      // Sums over micro-batches are in fp32, and so cross every narrower wire in another type.
      c.micro_batches = 2;
      c.accumulation = Accumulation::kAtBoundary;
      cases.push_back(c);
    }
  }
  // With a topology: what auto takes by it for sums that are rounded once, and the hierarchy.
  using collectives::Algorithm;
  using collectives::Reduction;
  GoldenCase c = {4, DType::kBFloat16, OptimizerKind::kAdamW};
  c.ranks_per_node = 2;
  cases.push_back(c);
  c.algorithm = Algorithm::kHierarchical;
  for (const Reduction reduction : {Reduction::kFp32Partials, Reduction::kRoundedPerHop}) {
    c.reduction = reduction;
    c.dtype = DType::kBFloat16;
    c.communication_dtype = {};
    cases.push_back(c);
    c.dtype = DType::kFloat32;
    c.communication_dtype = DType::kFloat16;
    cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return ToString(info.param); });

}  // namespace
}  // namespace brigade::zero
