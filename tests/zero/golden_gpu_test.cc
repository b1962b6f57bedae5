// Four ranks that share one GPU: every stage gives the specification's bits over 50 steps, and
// those of the CPU.

#include <array>
#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/golden.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using optim::OptimizerKind;
using precision::DType;

constexpr int kRanks = 4;

class GoldenGpuTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GoldenGpuTest, EveryStageGivesTheSpecificationsBits) {
  ExpectTheSpecificationsBits(GetParam(), device::Cuda());
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GoldenGpuTest,
    ::testing::Values(
        GoldenCase{kRanks, DType::kFloat16, OptimizerKind::kAdamW},
        GoldenCase{kRanks, DType::kBFloat16, OptimizerKind::kAdamW, 3},
        GoldenCase{kRanks, DType::kFloat16, OptimizerKind::kAdamW, 3, Accumulation::kAtBoundary},
        GoldenCase{kRanks, DType::kFloat32, OptimizerKind::kSgd},
        GoldenCase{kRanks, DType::kBFloat16, OptimizerKind::kLion},
        GoldenCase{kRanks, DType::kBFloat16, OptimizerKind::kAdamW8},
        GoldenCase{kRanks, DType::kFloat16, OptimizerKind::kMuon},
        GoldenCase{kRanks, DType::kFloat16, OptimizerKind::kAdafactor},
        GoldenCase{kRanks, DType::kBFloat16, OptimizerKind::kAdafactor, 3},
        GoldenCase{.ranks = kRanks,
                   .dtype = DType::kBFloat16,
                   .optimizer = OptimizerKind::kLamb,
                   .bucket_elements = 30'000},
        GoldenCase{.ranks = kRanks,
                   .dtype = DType::kBFloat16,
                   .micro_batches = 3,
                   .communication_dtype = DType::kFloat16,
                   .shard_ranks = 2,
                   .hpz_ranks = 1},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kBFloat16,
                   .quantized_weights = kernels::QuantFormat::kInt8,
                   .quantized_gradients = kernels::QuantFormat::kInt4,
                   .node_ranks = 2},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kFloat16,
                   .reload_at = 21,
                   .gradient_compression = CompressionOptions()},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kBFloat16,
                   .reload_at = 21,
                   .gradient_compression =
                       CompressionOptions{.method = GradientCompression::kPowerSgd, .rank = 2}},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kBFloat16,
                   .gradient_compression = CompressionOptions{.method = GradientCompression::kTopK,
                                                              .density = 0.03}},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kFloat16,
                   .reload_at = 21,
                   .node_ranks = 2,
                   .gradient_compression = CompressionOptions()},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kBFloat16,
                   .optimizer = OptimizerKind::kOneBitAdam,
                   .freeze_step = 12},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kBFloat16,
                   .optimizer = OptimizerKind::kZeroOneAdam,
                   .freeze_step = 15},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kFloat16,
                   .optimizer = OptimizerKind::kZeroOneAdam,
                   .reload_at = 35,
                   .freeze_step = 15,
                   .local_step_scaler = 4,
                   .local_step_clipper = 8},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kBFloat16,
                   .optimizer = OptimizerKind::kOneBitLamb,
                   .bucket_elements = 30'000,
                   .reload_at = 21,
                   .freeze_step = 12},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kFloat16,
                   .quantized_gradients = kernels::QuantFormat::kInt4,
                   .node_ranks = 2,
                   .loco = LocoOptions()},
        GoldenCase{.ranks = 4,
                   .dtype = DType::kFloat16,
                   .reload_at = 31,
                   .quantized_gradients = kernels::QuantFormat::kInt4,
                   .loco = LocoOptions()}),
    [](const auto& info) { return ToString(info.param); });

// With the host's lane, beside streams of the GPU: each case has one way of its own.
const OffloadOptions kHost = {.optimizer_state = device::Tier::kHost, .host_threads = 1};
const OffloadOptions kHalf = {
    .optimizer_state = device::Tier::kHost, .host_share = 0.5, .host_threads = 1};
const OffloadOptions kParameters = {
    .optimizer_state = device::Tier::kHost, .parameters = device::Tier::kHost, .host_threads = 1};
const OffloadOptions kDelayed = {.optimizer_state = device::Tier::kHost,
                                 .delay_update = true,
                                 .delay_warm_up = 10,
                                 .host_threads = 1};
INSTANTIATE_TEST_SUITE_P(
    Offload, GoldenGpuTest,
    ::testing::Values(
        GoldenCase{.ranks = 2, .offload = kHost},
        GoldenCase{.ranks = 2, .dtype = DType::kBFloat16, .micro_batches = 3, .offload = kHalf},
        GoldenCase{.ranks = 2, .dtype = DType::kFloat32, .offload = kParameters, .reload_at = 20},
        GoldenCase{.ranks = 2, .offload = kDelayed, .reload_at = 20},
        GoldenCase{.ranks = 2, .offload = InFile(device::Tier::kDevice), .reload_at = 20},
        GoldenCase{.ranks = 2, .dtype = DType::kFloat32, .offload = InFile(device::Tier::kFile)}),
    [](const auto& info) { return ToString(info.param); });

using Trajectories = std::array<Trajectory, kRanks>;

Trajectories TrainedOn(device::Device device, const GoldenCase& c, int stage) {
  Trajectories trained;
  collectives::OnThreads({.size = kRanks, .device = device}, [&](collectives::Rank& self) {
    EXPECT_OK(
        Train(self, OptionsOf(c, stage), InjectionsOf(c), trained[static_cast<size_t>(self.rank)]));
  });
  return trained;
}

TEST(GoldenGpuTest, EveryStageGivesTheCpusBits) {
  const GoldenCase c = {.ranks = kRanks};
  const Trajectories cpu = TrainedOn(device::Cpu(), c, 0);
  for (int stage = 0; stage < kStages; ++stage) {
    const Trajectories gpu = TrainedOn(device::Cuda(), c, stage);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(gpu[rank].states.size(), size_t{kGoldenSteps});
      EXPECT_OK(Compare(gpu[rank], cpu[rank])) << "stage " << stage << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace brigade::zero
