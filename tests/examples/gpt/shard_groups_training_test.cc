// Trainings in groups that have a whole state each, on every kind of grid: stages have the same
// bits, memory and traffic are those of the formulas, and the ends of the scale are what they are
// without groups.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/recompute/policy.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

void ExpectTheSame(const Trained& run, const Trained& wanted) {
  ASSERT_EQ(run.losses.size(), static_cast<size_t>(kGridSteps));
  EXPECT_EQ(run.losses, wanted.losses);
  EXPECT_EQ(run.grad_norms, wanted.grad_norms);
  EXPECT_EQ(run.held_out, wanted.held_out);
}

TEST(ShardGroupsTrainingTest, StagesHaveTheSameBitsOnEveryGrid) {
  const GridCase grids[] = {
      {.data = 4, .micro_batches = 3, .shard_ranks = 2},
      {.data = 6, .shard_ranks = 3},
      {.tensor = 2, .data = 4, .sequence_parallel = true, .shard_ranks = 2},
      // A group has the context ranks of a text, or those of two.
      {.context = 2, .data = 2, .shard_ranks = 2},
      {.context = 2, .data = 4, .ring = true, .shard_ranks = 4},
      {.data = 4, .pipeline = 2, .micro_batches = 2, .shard_ranks = 2},
      {.data = 2, .pipeline = 2, .schedule = "zb-v", .micro_batches = 4, .shard_ranks = 1},
  };
  int turn = 0;
  for (GridCase grid : grids) {
    const std::string precision = turn++ % 2 == 0 ? "bf16" : "fp16";
    SCOPED_TRACE(absl::StrCat(precision, ", ", ToString(grid)));
    const Trained wanted = Train(JobOf(grid, grid.tensor, 0, precision, kAdamW), grid.ranks());
    ExpectModelledMemoryAndTraffic(wanted, kGridSteps);
    for (int stage = 1; stage < zero::kStages; ++stage) {
      SCOPED_TRACE(absl::StrCat("stage ", stage));
      const Trained run = Train(JobOf(grid, grid.tensor, stage, precision, kAdamW), grid.ranks());
      ExpectTheSame(run, wanted);
      ExpectModelledMemoryAndTraffic(run, kGridSteps);
      EXPECT_GT(run.outcome.ranks[0].traffic.between, 0);
    }
  }
}

TEST(ShardGroupsTrainingTest, TheEndsOfTheScaleAreThoseWithoutGroups) {
  const GridCase plain = {.data = 4};
  const Trained stage0 = Train(JobOf(plain, 1, 0, "bf16", kAdamW), 4);
  for (const int shard_ranks : {1, 4}) {
    GridCase grid = plain;
    grid.shard_ranks = shard_ranks;
    for (const int stage : {1, 3}) {
      SCOPED_TRACE(absl::StrCat("groups of ", shard_ranks, ", stage ", stage));
      ExpectTheSame(Train(JobOf(grid, 1, stage, "bf16", kAdamW), 4), stage0);
    }
  }
}

TEST(ShardGroupsTrainingTest, RecomputationAndOffloadChangeNoBit) {
  const GridCase grid = {.data = 4, .micro_batches = 2, .shard_ranks = 2};
  const Trained wanted = Train(JobOf(grid, 1, 3, "bf16", kAdamW), 4);
  for (const bool in_file : {false, true}) {
    Job job = JobOf(grid, 1, 3, "bf16", kAdamW);
    job.config.recompute = recompute::ParsePolicy("block").value();
    zero::OffloadOptions& offload = job.config.zero.offload;
    offload.optimizer_state = offload.parameters =
        in_file ? device::Tier::kFile : device::Tier::kHost;
    offload.file.directory = ::testing::TempDir();
    const Trained run = Train(job, 4);
    ExpectTheSame(run, wanted);
    ExpectModelledMemoryAndTraffic(run, kGridSteps);
  }
}

// Weights of backward passes from near ranks: the same bits, also where the training evaluates
// between its steps, makes activations again, or runs gather for several passes.
TEST(ShardGroupsTrainingTest, SecondSlicesChangeNoBit) {
  const GridCase grids[] = {{.data = 4, .micro_batches = 2},
                            {.data = 4, .micro_batches = 2, .shard_ranks = 2},
                            {.context = 2, .data = 2},
                            {.data = 4, .pipeline = 2, .schedule = "zb-v", .micro_batches = 4}};
  for (const GridCase& grid : grids) {
    for (const bool again : {false, true}) {
      if (again && grid.pipeline > 1) continue;
      SCOPED_TRACE(absl::StrCat(ToString(grid), again ? ", recomputed" : ""));
      Job job = JobOf(grid, 1, 3, "bf16", kAdamW);
      job.evaluate_every = 5;
      if (again) job.config.recompute = recompute::ParsePolicy("block").value();
      const Trained wanted = Train(job, grid.ranks());
      job.config.zero.hpz_ranks = 2;
      const Trained run = Train(job, grid.ranks());
      ExpectTheSame(run, wanted);
      ExpectModelledMemoryAndTraffic(run, kGridSteps);
      const zero::Traffic &with = run.outcome.ranks[0].traffic,
                          &without = wanted.outcome.ranks[0].traffic;
      EXPECT_GT(with.near, 0);
      EXPECT_LT(with.parameters, without.parameters);
    }
  }
}

// Weights and gradients as codes: the same bits in stages 1 to 3, also where the training evaluates
// between its steps, and fewer bytes.
TEST(ShardGroupsTrainingTest, CodesGiveTheSameBitsInEveryStage) {
  using kernels::QuantFormat;
  const GridCase grid = {.data = 4, .micro_batches = 2};
  for (const int node_ranks : {0, 2}) {
    std::optional<Trained> wanted;
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, ", nodes of ", node_ranks));
      Job job = JobOf(grid, 1, stage, "bf16", kAdamW);
      job.evaluate_every = 5;
      const Trained plain = Train(job, 4);
      job.config.zero.quantized_weights = QuantFormat::kInt8;
      job.config.zero.quantized_gradients = QuantFormat::kInt4;
      job.config.zero.node_ranks = node_ranks;
      const Trained run = Train(job, 4);
      if (wanted.has_value()) ExpectTheSame(run, *wanted);
      wanted = run;
      ExpectModelledMemoryAndTraffic(run, kGridSteps);
      const zero::Traffic &with = run.outcome.ranks[0].traffic,
                          &without = plain.outcome.ranks[0].traffic;
      // Slices of some hundred elements are little more than a block.
      EXPECT_LT(with.gradients + with.nodes, without.gradients / 2);
      EXPECT_LT(with.parameters, without.parameters);
    }
  }
}

// Gradients as signs, in one hop and in two: the same bits in stages 0 to 2, and fewer bytes.
TEST(ShardGroupsTrainingTest, SignsGiveTheSameBitsInEveryStage) {
  const GridCase grid = {.data = 4, .micro_batches = 2};
  for (const int node_ranks : {0, 2}) {
    std::optional<Trained> wanted;
    for (const int stage : {0, 1, 2}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, ", nodes of ", node_ranks));
      Job job = JobOf(grid, 1, stage, "bf16", kAdamW);
      job.config.zero.gradient_compression.emplace();
      job.config.zero.node_ranks = node_ranks;
      const Trained run = Train(job, 4);
      if (wanted.has_value()) ExpectTheSame(run, *wanted);
      wanted = run;
      ExpectModelledMemoryAndTraffic(run, kGridSteps);
      const zero::Traffic& sent = run.outcome.ranks[0].traffic;
      EXPECT_EQ(sent.nodes > 0, node_ranks > 0);
      // Messages of some hundred signs are little more than their scale.
      if (node_ranks > 0) {
        EXPECT_LT(sent.nodes, sent.gradients / 4);
      }
    }
  }
}

}  // namespace
}  // namespace brigade::gpt
