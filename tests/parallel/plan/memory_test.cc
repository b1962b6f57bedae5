#include "brigade/parallel/plan/memory.h"

#include "brigade/device/memory_stats.h"
#include "brigade/precision/dtype.h"
#include "brigade/replicas/options.h"
#include "brigade/replicas/round_plan.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

Execution Unfused(bool sequence_parallel, int64_t batch = 64) {
  Execution execution;
  execution.batch = batch;
  execution.sequence_parallel = sequence_parallel;
  execution.fused_attention = false;
  return execution;
}

// In units of s b h bytes.
double Units(const Transformer& model, const GridShape& grid, Recomputation recomputation,
             const Execution& execution) {
  constexpr int kTexts = 3;
  return ActivationsOfLayer(model, grid, kTexts, recomputation, execution) /
         static_cast<double>(kTexts * model.context * model.width / grid.context);
}

TEST(ActivationsOfLayerTest, AreThePublishedSharesOfAttention) {
  const auto check = [](const char* name, double attention, double all) {
    const Transformer model = *TransformerByName(name);
    EXPECT_DOUBLE_EQ(Units(model, {}, Recomputation::kNone, Unfused(false)), all);
    EXPECT_DOUBLE_EQ(Units(model, {}, Recomputation::kSelective, Unfused(false)), all - attention);
  };
  // arXiv 2205.05198: 70.2 % of GPT-3's, 65.3 % of MT-NLG's.
  check("gpt-175b", 80, 114);
  check("gpt-530b", 64, 98);
}

TEST(ActivationsOfLayerTest, AreDividedByTensorRanks) {
  const Transformer model = *TransformerByName("gpt-175b");
  const GridShape grid = {.tensor = 8};
  EXPECT_DOUBLE_EQ(Units(model, grid, Recomputation::kNone, Unfused(false)),
                   10 + 24.0 / 8 + 80.0 / 8);
  EXPECT_DOUBLE_EQ(Units(model, grid, Recomputation::kNone, Unfused(true)), 114.0 / 8);
  EXPECT_DOUBLE_EQ(Units(model, grid, Recomputation::kSelective, Unfused(true)), 34.0 / 8);
  EXPECT_DOUBLE_EQ(Units(model, grid, Recomputation::kFull, Unfused(false)), 2);
  EXPECT_DOUBLE_EQ(Units(model, grid, Recomputation::kFull, Unfused(true)), 2.0 / 8);
  EXPECT_DOUBLE_EQ(Units(model, grid, Recomputation::kNone, Execution{}), 34.0 / 8);
}

// Biases, norms and padding are what a plan adds to the paper's formula.
TEST(MemoryModelTest, HasThePapersTermsInEveryStageOfZero) {
  const Transformer model = *TransformerByName("gpt-7.5b");
  const int ranks = 64;
  for (int stage = 0; stage < 4; ++stage) {
    MemoryModel memory(model, Unfused(false, ranks));
    Configuration configuration;
    configuration.grid.data = ranks;
    configuration.zero_stage = stage;
    ASSERT_OK_AND_ASSIGN(const ZeroUse use, memory.ZeroOf(configuration, false));
    const double paper = zero::PaperBytes(static_cast<double>(Parameters(model)), ranks, stage);
    const double terms = use.memory.weights + use.memory.gradients + use.memory.optimizer_state;
    EXPECT_NEAR(terms / paper, 1, 2e-3) << stage;
    EXPECT_EQ(use.memory.activations, 0);
  }
}

TEST(MemoryModelTest, AddsSumsOverMicroBatches) {
  const Transformer model = *TransformerByName("gpt-1.7b");
  MemoryModel one(model, Unfused(false, 4)), several(model, Unfused(false, 8));
  Configuration configuration;
  configuration.grid.data = 4;
  configuration.zero_stage = 1;
  ASSERT_OK_AND_ASSIGN(const ZeroUse a, one.ZeroOf(configuration, false));
  ASSERT_OK_AND_ASSIGN(const ZeroUse b, several.ZeroOf(configuration, false));
  EXPECT_EQ(b.memory.gradients, a.memory.gradients * 3);  // 2 bytes, and 4 more
}

// A plan of the test's own, to the byte.
TEST(MemoryModelTest, IsWhatZeroSaysOfTheStage) {
  const Transformer model = {
      .name = "toy", .layers = 4, .width = 64, .heads = 4, .context = 32, .vocabulary = 1000};
  Configuration configuration;
  configuration.grid = {.tensor = 2, .context = 1, .data = 2, .pipeline = 2};
  configuration.zero_stage = 2;
  const Execution execution = Unfused(true, 8);
  MemoryModel memory(model, execution);
  ASSERT_OK_AND_ASSIGN(const ZeroUse use, memory.ZeroOf(configuration, false));

  // A block of 12 h^2 + 7 h that are cut and 6 h that are not; half the table, all positions.
  const int64_t h = 64, cut = (12 * h * h + 7 * h) / 2, whole = 6 * h;
  zero::ModelSpec units = {{"embedding", {{"e", 1000 * h / 2}, {"p", 32 * h}}, {}}};
  for (const char* name : {"a", "b"}) {
    units.push_back({name, {{std::string(name) + "c", cut}, {std::string(name) + "w", whole}}, {}});
  }
  zero::ZeroOptions options;
  options.stage = 2;
  options.micro_batches = 4;
  ASSERT_OK_AND_ASSIGN(const auto plan, zero::Plan::Create(units, {2}));
  const auto terms = zero::MemoryOf(plan, options);
  EXPECT_EQ(use.memory.total(), static_cast<double>(Total(terms, device::Tier::kDevice)));
  EXPECT_EQ(use.memory.weights,
            static_cast<double>(Total(terms, device::Tier::kDevice, device::Purpose::kParameters)));
}

// The same with two groups of two ranks in each of two replicas.
TEST(MemoryModelTest, IsWhatZeroAndReplicasSayOfGroups) {
  const Transformer model = {
      .name = "toy", .layers = 2, .width = 64, .heads = 4, .context = 32, .vocabulary = 1000};
  Execution execution = Unfused(true, 16);
  execution.replica_period = 7;
  Configuration configuration;
  configuration.grid.data = 8;
  configuration.zero_stage = 2;
  configuration.replicas = 2;
  configuration.shard_ranks = 2;
  const int64_t h = 64, cut = 12 * h * h + 7 * h, whole = 6 * h;
  zero::ModelSpec units = {{"embedding", {{"e", 1000 * h}, {"p", 32 * h}}, {}}};
  for (const char* name : {"a", "b"}) {
    units.push_back({name, {{std::string(name) + "c", cut}, {std::string(name) + "w", whole}}, {}});
  }
  units.push_back({"head", {{"hc", 0}, {"hw", 2 * h}}, {}});
  zero::ZeroOptions options;
  options.stage = 2;
  options.micro_batches = 2;
  options.shard_ranks = 2;
  ASSERT_OK_AND_ASSIGN(const auto plan, zero::Plan::Create(units, {.ranks = 2, .shard_groups = 2}));
  for (const int round_bytes : {4, 2}) {
    execution.round_bytes = round_bytes;
    MemoryModel memory(model, execution);
    ASSERT_OK_AND_ASSIGN(const ZeroUse use, memory.ZeroOf(configuration, false));
    auto terms = zero::MemoryOf(plan, options);
    const replicas::OuterOptions outer = {
        .period = 7,
        .wire = round_bytes == 4 ? precision::DType::kFloat32 : precision::DType::kBFloat16};
    ASSERT_OK_AND_ASSIGN(const auto rounds, replicas::MemoryOf(plan, options, outer));
    terms.insert(terms.end(), rounds.begin(), rounds.end());
    EXPECT_EQ(use.memory.total(), static_cast<double>(Total(terms, device::Tier::kDevice)));
  }
}

TEST(MemoryModelTest, KeepsAsManyMicroBatchesAsTheScheduleDoes) {
  const Transformer model = *TransformerByName("gpt-175b");
  const Execution execution = Unfused(true, 64);
  const MemoryModel memory(model, execution);
  Configuration configuration;
  configuration.grid = {.tensor = 8, .pipeline = 8};
  configuration.recomputation = Recomputation::kSelective;
  const double layer = 2048.0 * 12288 * 34 / 8;
  EXPECT_DOUBLE_EQ(memory.ActivationsOf(configuration, 0), 8 * 12 * layer);
  EXPECT_DOUBLE_EQ(memory.ActivationsOf(configuration, 3), 5 * 12 * layer);
  // The last one has logits: 4 s b (h + V) / t.
  EXPECT_DOUBLE_EQ(memory.ActivationsOf(configuration, 7),
                   12 * layer + 4 * 2048.0 * (12288 + 51200) / 8);
  // p (1 + (p-1)/(pv)) stages.
  configuration.schedule = {ScheduleKind::kInterleaved, 3};
  EXPECT_NEAR(memory.ActivationsOf(configuration, 0), 8 * (1 + 7.0 / 24) * 12 * layer, 1);
  configuration.schedule = {ScheduleKind::kGpipe, 1};
  EXPECT_DOUBLE_EQ(memory.ActivationsOf(configuration, 0), 64 * 12 * layer);
  configuration.schedule = {};
  configuration.recomputation = Recomputation::kFull;
  EXPECT_DOUBLE_EQ(memory.ActivationsOf(configuration, 0),
                   8 * 12 * (2048.0 * 12288 * 2 / 8) + 2048.0 * 12288 * 114 / 8);
}

TEST(MemoryModelTest, TakesTheStageThatNeedsMore) {
  const Execution execution = Unfused(true, 8);
  Transformer model = *TransformerByName("gpt-1.7b");
  model.vocabulary = 1 << 20;  // The logits of the last stage are larger than all blocks.
  MemoryModel memory(model, execution);
  Configuration configuration;
  configuration.grid.pipeline = 2;
  ASSERT_OK_AND_ASSIGN(const MemoryUse use, memory.MemoryOf(configuration));
  EXPECT_EQ(use.activations, memory.ActivationsOf(configuration, 1));
}

TEST(WeightGathersTest, ComeForEachPassOrOnceForARunOfAChunk) {
  EXPECT_EQ(WeightGathers({{}, 1, 5}), 10);
  EXPECT_EQ(WeightGathers({{}, 4, 8}), 1);
  EXPECT_EQ(WeightGathers({{ScheduleKind::kInterleaved, 2}, 4, 8}), 4);
}

}  // namespace
}  // namespace brigade::parallel
