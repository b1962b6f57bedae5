// Weights and gradients that cross the wire as codes give the specification's bits in every stage:
// in one hop and in two, over micro-batches, with groups, second slices and a state elsewhere, over
// skipped steps and a load.

#include <tuple>
#include <vector>

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using kernels::QuantFormat;
using precision::DType;

class GoldenCodesTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenCodesTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

std::vector<GoldenCase> Cases() {
  constexpr auto kInt8 = QuantFormat::kInt8, kInt4 = QuantFormat::kInt4;
  std::vector<GoldenCase> cases;
  for (const auto& [ranks, shard_ranks, node_ranks] :
       {std::tuple(2, 0, 0), std::tuple(3, 0, 0), std::tuple(4, 0, 2), std::tuple(4, 2, 0),
        std::tuple(6, 0, 3), std::tuple(2, 1, 0), std::tuple(1, 0, 0), std::tuple(4, 0, 4)}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
      for (const auto& [micro_batches, accumulation] :
           {std::tuple(1, Accumulation::kEveryMicroBatch),
            std::tuple(3, Accumulation::kEveryMicroBatch),
            std::tuple(3, Accumulation::kAtBoundary)}) {
        GoldenCase c = {.ranks = ranks, .dtype = dtype, .micro_batches = micro_batches};
        c.accumulation = accumulation;
        c.shard_ranks = shard_ranks;
        c.quantized_gradients = kInt4;
        c.node_ranks = node_ranks;
        // Stages 0 to 3.
        cases.push_back(c);
        c.quantized_gradients = kInt8;
        c.quantized_weights = kInt8;
        c.reload_at = 21;
        cases.push_back(c);
        if (node_ranks > 0) continue;
        c.quantized_gradients = {};
        c.quantized_weights = kInt4;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

std::vector<GoldenCase> Others() {
  constexpr auto kInt8 = QuantFormat::kInt8, kInt4 = QuantFormat::kInt4;
  std::vector<GoldenCase> cases;
  GoldenCase c = {.ranks = 4, .dtype = DType::kBFloat16};
  c.quantized_weights = kInt8;
  c.quantized_gradients = kInt4;
  c.reload_at = 21;
  GoldenCase of_near = c;
  of_near.hpz_ranks = 2;
  cases.push_back(of_near);
  of_near.quantized_frozen_weights = kInt4;
  cases.push_back(of_near);
  of_near.shard_ranks = 2;
  of_near.communication_dtype = DType::kFloat16;  // between groups
  cases.push_back(of_near);
  GoldenCase tied = c;
  tied.tied_apart = true;
  tied.node_ranks = 2;
  cases.push_back(tied);
  tied.micro_batches = 3;
  tied.chunks = {0, 2, 4};
  tied.has_runs = true;
  cases.push_back(tied);
  for (const OffloadOptions& offload : Offloads()) {
    GoldenCase elsewhere = c;
    elsewhere.ranks = 2;
    elsewhere.offload = offload;
    cases.push_back(elsewhere);
    if (offload.host_share != 1 || offload.file_parameters()) continue;
    elsewhere.offload.delay_update = true;
    elsewhere.offload.delay_warm_up = 10;
    cases.push_back(elsewhere);
  }
  return cases;
}

// With error feedback, which is forgotten in some steps, skipped ones among them.
std::vector<GoldenCase> Fed() {
  std::vector<GoldenCase> cases;
  for (const auto& [ranks, shard_ranks, node_ranks] :
       {std::tuple(2, 0, 0), std::tuple(4, 0, 2), std::tuple(4, 2, 0), std::tuple(1, 0, 0)}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      for (const auto& [micro_batches, accumulation] :
           {std::tuple(1, Accumulation::kEveryMicroBatch),
            std::tuple(3, Accumulation::kEveryMicroBatch),
            std::tuple(3, Accumulation::kAtBoundary)}) {
        GoldenCase c = {.ranks = ranks, .dtype = dtype, .micro_batches = micro_batches};
        c.accumulation = accumulation;
        c.shard_ranks = shard_ranks;
        c.quantized_gradients = QuantFormat::kInt4;
        c.node_ranks = node_ranks;
        c.loco = LocoOptions{.reset_steps = micro_batches == 1 ? 1024 : 15};
        if (micro_batches == 3) c.reload_at = 21;
        // Behind a step that is skipped: errors have another loss scale.
        if (micro_batches == 1 && dtype == DType::kFloat16) c.reload_at = 31;
        cases.push_back(c);
      }
    }
  }
  GoldenCase tied = {.ranks = 2, .dtype = DType::kBFloat16, .micro_batches = 3};
  tied.quantized_gradients = QuantFormat::kInt8;
  tied.quantized_weights = QuantFormat::kInt8;
  tied.loco = LocoOptions{.err_beta = 0.5, .reset_steps = 7};
  tied.tied_apart = true;
  tied.chunks = {0, 2, 4};
  tied.has_runs = true;
  tied.reload_at = 22;
  cases.push_back(tied);
  GoldenCase elsewhere = {.ranks = 2, .dtype = DType::kFloat16};
  elsewhere.quantized_gradients = QuantFormat::kInt4;
  elsewhere.loco.emplace();
  elsewhere.offload.optimizer_state = device::Tier::kHost;
  cases.push_back(elsewhere);
  elsewhere.offload.delay_update = true;
  elsewhere.offload.delay_warm_up = 10;
  cases.push_back(elsewhere);
  elsewhere.offload = InFile(device::Tier::kDevice);
  elsewhere.reload_at = 21;
  cases.push_back(elsewhere);
  return cases;
}

// Two nodes of two ranks, over every engine and with delays.
GoldenCase InNodes() {
  GoldenCase c = {.ranks = 4, .dtype = DType::kFloat16, .micro_batches = 2};
  c.quantized_weights = QuantFormat::kInt8;
  c.quantized_gradients = QuantFormat::kInt4;
  c.node_ranks = 2;
  c.loco.emplace();
  return c;
}

void ExpectBits(const collectives::RanksOptions& options, int stage,
                const collectives::CreateEngineFn& engines) {
  const GoldenCase c = InNodes();
  const Trajectory wanted = Specified(c);
  collectives::OnRanks(options, engines, [&](collectives::Rank& self) {
    Trajectory trained;
    EXPECT_OK(Train(self, OptionsOf(c, stage), InjectionsOf(c), trained));
    EXPECT_OK(Compare(trained, wanted)) << "stage " << stage << ", rank " << self.rank;
    self.AwaitOthers();
  });
}

TEST(CodesOnEnginesTest, GlooGivesTheSpecificationsBits) {
  const collectives::RanksOptions options = {.size = 4};
  for (const int stage : {1, 3}) {
    ExpectBits(options, stage, collectives::testing::GlooEngines(options));
  }
}

class CodesOnNcclTest : public collectives::NcclTest {};

TEST_F(CodesOnNcclTest, NcclGivesTheSpecificationsBits) {
  const collectives::RanksOptions options = {.size = 4};
  ExpectBits(options, 2, collectives::NcclEngines(options));
}

TEST(CodesOnEnginesTest, DelaysChangeNoBit) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    device::RaceChecker checker;
    const collectives::RanksOptions options = {
        .size = 4, .random_delay = {.seed = seed, .max_delay_us = 100}, .race_checker = &checker};
    ExpectBits(options, static_cast<int>(seed % 3) + 1, collectives::ThreadEngines(options));
    EXPECT_TRUE(checker.reports().empty());
  }
}

const auto name_of = [](const auto& info) { return ToString(info.param); };
INSTANTIATE_TEST_SUITE_P(Cases, GoldenCodesTest, ::testing::ValuesIn(Cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Others, GoldenCodesTest, ::testing::ValuesIn(Others()), name_of);
INSTANTIATE_TEST_SUITE_P(Fed, GoldenCodesTest, ::testing::ValuesIn(Fed()), name_of);

}  // namespace
}  // namespace brigade::zero
