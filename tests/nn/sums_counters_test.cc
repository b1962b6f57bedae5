// What the sums over rows cost on a GPU, counted by the emulator: blocks, sectors, bytes.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "brigade/emulator/runtime/control.h"
#include "brigade/nn/cross_entropy.h"
#include "brigade/nn/embedding.h"
#include "brigade/nn/layer_norm.h"
#include "brigade/nn/pointwise.h"
#include "brigade/tests/nn/lab.h"

namespace brigade::nn {
namespace {

using precision::BFloat16;

constexpr int64_t kRows = 1024, kColumns = 768;
constexpr precision::DType kType = precision::DType::kBFloat16;

struct Cost {
  // That add rows up.
  int64_t blocks = 0;
  // Bytes of the sectors that warps touch.
  int64_t read = 0, written = 0;
  double load_sectors = 0, store_sectors = 0;
};

// Of the launches since the last time whose names hold one of `kernels`; printed as a row of the
// second table of benchmarks/results/2026-11-22-counted-accesses.md.
Cost CostOf(const char* name, device::Stream& stream, const std::vector<std::string>& kernels) {
  EXPECT_OK(stream.Synchronize());
  Cost cost;
  emulator::AccessCounts loads, stores;
  for (const emulator::LaunchRecord& launch : emulator::TakeLaunches()) {
    bool counted = false;
    for (const std::string& kernel : kernels) {
      counted = counted || launch.kernel.find(kernel) != std::string::npos;
    }
    if (!counted) continue;
    if (launch.kernel.find("FinishKernel") == std::string::npos) {
      cost.blocks = std::max<int64_t>(cost.blocks, launch.grid.x);
    }
    loads += launch.loads;
    stores += launch.stores;
  }
  cost.read = loads.sectors * 32;
  cost.written = stores.sectors * 32;
  cost.load_sectors = static_cast<double>(loads.sectors) / static_cast<double>(loads.least_sectors);
  cost.store_sectors =
      static_cast<double>(stores.sectors) / static_cast<double>(stores.least_sectors);
  std::printf("| %s | %lld | %.2f | %.2f | %.3f | %.3f |\n", name,
              static_cast<long long>(cost.blocks), cost.load_sectors, cost.store_sectors,
              static_cast<double>(cost.read) * 1e-6, static_cast<double>(cost.written) * 1e-6);
  return cost;
}

class SumsCountersTest : public ::testing::Test {
 protected:
  SumsCountersTest() { emulator::RecordLaunches(true); }
  ~SumsCountersTest() override { emulator::RecordLaunches(false); }

  Lab lab_;
  Workspace workspace_ = Workspace::Create(lab_.context(), kType,
                                           {.rows = kRows, .sums = 4 * kColumns, .width = kColumns})
                             .value();
};

TEST_F(SumsCountersTest, BiasesTakeManyBlocks) {
  const auto dy = lab_.Noise<BFloat16>(kRows * kColumns), dbias = lab_.Raw<BFloat16>(kColumns);
  ASSERT_OK(
      BiasBackward({kType, kRows, kColumns}, dy.data(), {dbias.data()}, workspace_, lab_.stream()));
  const Cost cost = CostOf("bias", lab_.stream(), {"SumOfRows"});
  EXPECT_EQ(cost.blocks, 48);
  EXPECT_EQ(cost.load_sectors, 1.0);
  EXPECT_EQ(cost.store_sectors, 1.0);
  EXPECT_LE(cost.read, (2 * kRows + 4 * kRows / 64) * kColumns);
}

TEST_F(SumsCountersTest, LayerNormsTakeManyBlocks) {
  const auto x = lab_.Noise<BFloat16>(kRows * kColumns),
             dy = lab_.Noise<BFloat16>(kRows * kColumns);
  const auto weight = lab_.Noise<BFloat16>(kColumns), dx = lab_.Raw<BFloat16>(kRows * kColumns);
  const auto mean = lab_.Noise<float>(kRows), inverse = lab_.Noise<float>(kRows);
  const auto dweight = lab_.Raw<BFloat16>(kColumns), dbias = lab_.Raw<BFloat16>(kColumns);
  ASSERT_OK(LayerNormBackward(
      {kType, x.data(), weight.data(), mean.data(), inverse.data(), kRows, kColumns}, dy.data(),
      {dx.data()}, {dweight.data()}, {dbias.data()}, workspace_, lab_.stream()));
  const Cost cost = CostOf("layer norm", lab_.stream(), {"NormBackwardColumns"});
  EXPECT_EQ(cost.blocks, 48);
  EXPECT_EQ(cost.load_sectors, 1.0);
  EXPECT_EQ(cost.store_sectors, 1.0);
}

TEST_F(SumsCountersTest, TokensTakeManyBlocksAndReadLittle) {
  const Texts texts = {lab_.Bytes(kRows + 1).data(), 1, kRows};
  const auto dx = lab_.Noise<BFloat16>(kRows * kColumns);
  const auto dtokens = lab_.Raw<BFloat16>(kVocabulary * kColumns);
  const auto dpositions = lab_.Raw<BFloat16>(kRows * kColumns);
  emulator::TakeLaunches();
  ASSERT_OK(EmbeddingBackward(texts, kType, kColumns, dx.data(), {dtokens.data()},
                              {dpositions.data()}, workspace_, lab_.stream()));
  const Cost cost = CostOf("tokens, with the sort", lab_.stream(), {"Token", "RadixSort"});
  // Of as many parts as there may be.
  EXPECT_EQ(cost.blocks, (kRows / 64 + kVocabulary) * kColumns / 256);
  EXPECT_LE(cost.read, 8 * kRows * kColumns);
}

TEST_F(SumsCountersTest, TheMeanLossTakesManyWarps) {
  constexpr int64_t kLosses = 8192;
  const auto losses = lab_.Noise<float>(kLosses), mean = lab_.Raw<float>(1);
  const auto parts = lab_.Raw<double>(PartsOfLosses(kLosses));
  ASSERT_OK(MeanOfLosses(precision::DType::kFloat32, losses.data(), kLosses, parts.data(),
                         mean.data(), lab_.stream()));
  const Cost cost = CostOf("mean loss", lab_.stream(), {"LossPart", "MeanLoss"});
  EXPECT_EQ(cost.blocks, 4);
  EXPECT_EQ(cost.load_sectors, 1.0);
}

}  // namespace
}  // namespace brigade::nn
