// Groups that have a whole state each give the specification's bits, in which a group's ranks sum
// first and then the groups: in every stage, over wires of each type, with the state elsewhere, and
// as a stage of a pipeline.

#include <tuple>
#include <utility>
#include <vector>

#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using precision::DType;

class GoldenGroupsTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenGroupsTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

std::vector<GoldenCase> GroupsCases() {
  constexpr auto kAdamW = optim::OptimizerKind::kAdamW;
  constexpr auto kEvery = Accumulation::kEveryMicroBatch, kBoundary = Accumulation::kAtBoundary;
  std::vector<GoldenCase> cases;
  for (const auto& [micro_batches, accumulation] :
       {std::pair(1, kEvery), std::pair(3, kEvery), std::pair(3, kBoundary)}) {
    for (const auto& [ranks, shard_ranks] : {std::pair(2, 1), std::pair(2, 2), std::pair(3, 1),
                                             std::pair(4, 2), std::pair(6, 2), std::pair(6, 3)}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        GoldenCase c = {ranks, dtype, kAdamW, micro_batches, accumulation};
        c.shard_ranks = shard_ranks;
        cases.push_back(c);
        for (const DType wire : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
          c.communication_dtype = wire;
          cases.push_back(c);
        }
      }
    }
    GoldenCase c = {4, DType::kBFloat16, kAdamW, micro_batches, accumulation};
    c.shard_ranks = 2;
    GoldenCase of_pipeline = c;
    of_pipeline.tied_apart = true;
    of_pipeline.chunks = {0, 2, 4};
    of_pipeline.has_runs = true;
    cases.push_back(of_pipeline);
    of_pipeline.communication_dtype = DType::kFloat16;
    cases.push_back(of_pipeline);
    for (const OffloadOptions& offload : Offloads()) {
      if (offload.parameters != device::Tier::kDevice && accumulation == kBoundary) continue;
      c.offload = of_pipeline.offload = offload;
      cases.push_back(c);
      cases.push_back(of_pipeline);
      if (offload.host_share != 1 || offload.file_parameters()) continue;
      c.offload.delay_update = true;
      c.offload.delay_warm_up = 10;
      cases.push_back(c);
      c.reload_at = 21;
      cases.push_back(c);
      c.reload_at = -1;
    }
  }
  return cases;
}

// With second slices of weights, which change no bit: over a load and skipped steps, with weights
// elsewhere, and where runs gather them.
std::vector<GoldenCase> NearCases() {
  std::vector<GoldenCase> cases;
  for (const auto& [ranks, shard_ranks, hpz_ranks] :
       {std::tuple(4, 0, 2), std::tuple(4, 2, 2), std::tuple(6, 0, 3), std::tuple(3, 0, 1),
        std::tuple(2, 0, 2)}) {
    for (const int micro_batches : {1, 3}) {
      GoldenCase c = {.ranks = ranks, .dtype = DType::kBFloat16, .micro_batches = micro_batches};
      c.shard_ranks = shard_ranks;
      c.hpz_ranks = hpz_ranks;
      cases.push_back(c);
      c.reload_at = 21;
      cases.push_back(c);
      c.tied_apart = true;
      c.chunks = {0, 2, 4};
      c.has_runs = true;
      cases.push_back(c);
      for (const OffloadOptions& offload : Offloads()) {
        c.offload = offload;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

const auto name_of = [](const auto& info) { return ToString(info.param); };
INSTANTIATE_TEST_SUITE_P(Cases, GoldenGroupsTest, ::testing::ValuesIn(GroupsCases()), name_of);
INSTANTIATE_TEST_SUITE_P(Near, GoldenGroupsTest, ::testing::ValuesIn(NearCases()), name_of);

}  // namespace
}  // namespace brigade::zero
