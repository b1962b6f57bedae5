// Whole trainings on a GPU that all ranks share: every stage gives the same bits, near those of the
// CPU, in the memory that the model says.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/nn/random.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/recompute/policy.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "brigade/tests/testing/emulated.h"
#include "brigade/train/config/config.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

constexpr int kRanks = 4;
int64_t Steps() { return testing::OnGpuOrEmulator<int64_t>(30, 8); }

// A host with a GPU need not have Debian's licences.
std::string RandomWords(int64_t bytes, uint64_t seed) {
  constexpr const char* kWords[] = {"bucket ",  "brigade ", "gradient ", "rank ",
                                    "stream\n", "shard ",   "gather ",   "scale "};
  nn::Random random(seed, 0);
  std::string text;
  while (static_cast<int64_t>(text.size()) < bytes) text += kWords[random.Next() % 8];
  return text;
}

Trained Train(device::Device device, int stage, const std::string& precision,
              const recompute::Policy& policy = {}, int64_t steps = Steps(),
              train::RecomputeTimes times = train::RecomputeTimes::kOperations, int ranks = kRanks,
              const train::ModelParallelism& parallelism = {}, int micro_batches = 1) {
  // A scale of fp16 that does not overflow at first, so that every step counts.
  const std::string section = precision == "fp16"
                                  ? R"("fp16": {"enabled": true, "initial_scale_power": 12},)"
                              : precision == "bf16" ? R"("bf16": {"enabled": true},)"
                                                    : "";
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 32, .context = 32};
  job.config = train::ParseConfig(
                   absl::StrCat(R"({"train_batch_size": 8, "gradient_clipping": 1.0,)", section,
                                R"("optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
                          "gradient_accumulation_steps": )",
                                micro_batches, R"(, "zero_optimization": {"stage": )", stage, "}}"),
                   ranks, ".", parallelism)
                   .value();
  job.model.tensor_shards = job.config.tensor_shards;
  job.model.sequence_parallel = job.config.sequence_parallel;
  job.model.tensor_pieces = job.config.tensor_pieces;
  job.corpus = {RandomWords(20000, 1), RandomWords(2000, 2), "random words"};
  // Of a stash in a file.
  job.config.zero.offload.file.directory = ::testing::TempDir();
  job.config.recompute = policy;
  job.config.recompute_times = times;
  job.steps = steps;
  job.device = device;
  return Train(job, ranks);
}

class TrainingGpuTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, TrainingGpuTest, ::testing::Values("fp32", "fp16", "bf16"),
                         [](const auto& info) { return info.param; });

TEST_P(TrainingGpuTest, EveryStageTrainsAlikeAndWithinTwoPercentOfTheCpu) {
  const Trained cpu = Train(device::Cpu(), 0, GetParam());
  const auto steps = static_cast<size_t>(Steps());
  ASSERT_EQ(cpu.losses.size(), steps);
  ASSERT_LT(cpu.held_out, cpu.losses.front() - 1.0);
  Trained first;
  // Emulated, only those that differ most.
  for (int stage = 0; stage < zero::kStages; stage += testing::OnGpuOrEmulator(1, 3)) {
    SCOPED_TRACE(stage);
    const Trained gpu = Train(device::Cuda(), stage, GetParam());
    ASSERT_EQ(gpu.losses.size(), steps);
    if (stage == 0) first = gpu;
    EXPECT_EQ(gpu.losses, first.losses);
    EXPECT_EQ(gpu.held_out, first.held_out);
    for (size_t step = 0; step < steps; ++step) {
      EXPECT_NEAR(gpu.losses[step], cpu.losses[step], 0.02 * cpu.losses[step]) << step;
    }
    EXPECT_NEAR(gpu.held_out, cpu.held_out, 0.02 * cpu.held_out);
    for (const train::RankSummary& rank : gpu.outcome.ranks) {
      for (int p = 0; p < device::kPurposes; ++p) {
        EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
      }
    }
  }
}

// As on the CPU: tensor ranks that share the shards, and the rows, give one rank's bits; context
// ranks come near.
TEST(GridGpuTest, TensorRanksGiveOneRanksBits) {
  constexpr int64_t kSteps = 3;
  for (const bool shares_rows : {false, true}) {
    SCOPED_TRACE(shares_rows ? "sequence parallel" : "rows whole");
    const auto train = [&](device::Device device, int tensor) {
      return Train(device, 3, "bf16", {}, kSteps, train::RecomputeTimes::kOperations, tensor,
                   {.tensor = tensor,
                    .tensor_shards = 2,
                    .sequence_parallel = shares_rows,
                    // Pieces, of which the products are beside the exchange, where rows are shared.
                    .tensor_overlap = shares_rows ? std::optional(2) : std::nullopt});
    };
    const Trained one = train(device::Cuda(), 1), two = train(device::Cuda(), 2);
    const Trained cpu = train(device::Cpu(), 2);
    ASSERT_EQ(two.losses.size(), static_cast<size_t>(kSteps));
    EXPECT_EQ(two.losses, one.losses);
    EXPECT_EQ(two.held_out, one.held_out);
    EXPECT_NEAR(two.held_out, cpu.held_out, 0.02 * cpu.held_out);
    for (const train::RankSummary& rank : two.outcome.ranks) {
      for (int p = 0; p < device::kPurposes; ++p) {
        EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
      }
      for (size_t g = 0; g < rank.sent.size(); ++g) {
        EXPECT_EQ(rank.sent[g], kSteps * rank.sent_of_step[g]) << g;
      }
    }
  }
  const Trained whole =
      Train(device::Cuda(), 3, "bf16", {}, kSteps, train::RecomputeTimes::kOperations, 1);
  for (const train::ContextExchange exchange :
       {train::ContextExchange::kUlysses, train::ContextExchange::kRing}) {
    SCOPED_TRACE(exchange == train::ContextExchange::kRing ? "in a ring" : "by heads");
    const Trained shared =
        Train(device::Cuda(), 3, "bf16", {}, kSteps, train::RecomputeTimes::kOperations, 2,
              {.context = 2, .context_exchange = exchange});
    ASSERT_EQ(shared.losses.size(), static_cast<size_t>(kSteps));
    for (size_t step = 0; step < shared.losses.size(); ++step) {
      EXPECT_NEAR(shared.losses[step], whole.losses[step], 0.02 * whole.losses[step]) << step;
    }
    for (const train::RankSummary& rank : shared.outcome.ranks) {
      for (int p = 0; p < device::kPurposes; ++p) {
        EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
      }
    }
  }
}

// Stages that exchange on streams of their own, with every sort of schedule: one rank's bits.
TEST(GridGpuTest, PipelinesGiveOneRanksBits) {
  constexpr int64_t kSteps = 2;
  const int micro_batches = testing::OnGpuOrEmulator(8, 2);
  const auto train = [&](int stage, int ranks, const train::ModelParallelism& parallelism) {
    return Train(device::Cuda(), stage, "bf16", {}, kSteps, train::RecomputeTimes::kOperations,
                 ranks, parallelism, micro_batches);
  };
  const Trained one = train(0, 1, {});
  int stage = 0;
  for (const char* const schedule : {"1f1b", "interleaved:2", "zb-h1", "zb-v"}) {
    SCOPED_TRACE(schedule);
    const Trained run =
        train(stage++, 2, {.pipeline = 2, .schedule = parallel::ParseSchedule(schedule).value()});
    ASSERT_EQ(run.losses.size(), static_cast<size_t>(kSteps));
    EXPECT_EQ(run.losses, one.losses);
    EXPECT_EQ(run.held_out, one.held_out);
    ExpectModelledMemoryAndTraffic(run, kSteps);
  }
}

// One with a trial beside one without.
TEST(RecomputationGpuTest, ATrialAndInputsElsewhereChangeNoBit) {
  recompute::Policy policy = {.kind = recompute::Policy::Kind::kBlock};
  const Trained kept =
      Train(device::Cuda(), 3, "bf16", policy, 3, train::RecomputeTimes::kMeasured);
  ASSERT_EQ(kept.outcome.ranks.size(), size_t{kRanks});
  for (const train::RankSummary& rank : kept.outcome.ranks) {
    // Seconds between marks, by the device's events.
    EXPECT_EQ(rank.activations.time, kept.outcome.ranks[0].activations.time);
    EXPECT_GT(rank.activations.time, rank.activations.time_without);
    EXPECT_GT(rank.activations.time_without, 0);
    EXPECT_LT(rank.activations.time, 60);
    EXPECT_GT(rank.passes.once(), rank.passes.recompute());
    EXPECT_GT(rank.passes.recompute(), 0);
    for (int p = 0; p < device::kPurposes; ++p) {
      EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
    }
  }
  for (const auto tier : {recompute::StashTier::kHost, recompute::StashTier::kFile}) {
    policy.stash = tier;
    const Trained run = Train(device::Cuda(), 3, "bf16", policy, 3);
    EXPECT_EQ(run.losses, kept.losses);
    EXPECT_EQ(run.held_out, kept.held_out);
    for (const train::RankSummary& rank : run.outcome.ranks) {
      for (int p = 0; p < device::kPurposes; ++p) {
        EXPECT_EQ(rank.memory[p], rank.memory_model[p]) << p;
        EXPECT_EQ(rank.host_memory[p], rank.host_memory_model[p]) << p << " of the host";
      }
      EXPECT_EQ(rank.file_bytes, rank.file_bytes_model);
      const recompute::StashMovement &moved = rank.stashed, &of_step = rank.stashed_of_step;
      EXPECT_GT(moved.to_host, 0);
      EXPECT_EQ(moved.to_host, 3 * of_step.to_host);
      EXPECT_EQ(moved.from_host, 3 * of_step.from_host);
      EXPECT_EQ(moved.file_read, tier == recompute::StashTier::kFile ? moved.to_host : 0);
      EXPECT_EQ(moved.file_written, moved.file_read);
    }
  }
}

}  // namespace
}  // namespace brigade::gpt
