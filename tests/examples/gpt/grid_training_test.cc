// Trainings on grids: with shards that any number of tensor ranks share the same bits, and
// otherwise what one rank would have done.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/policy.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "brigade/tests/testing/sanitizer.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using Parameter = std::tuple<std::string, bool>;
std::string NameOf(const std::string& precision, bool sequence_parallel) {
  return precision + (sequence_parallel ? "SequenceParallel" : "");
}

class GridProductTest : public ::testing::TestWithParam<Parameter> {};
INSTANTIATE_TEST_SUITE_P(All, GridProductTest,
                         ::testing::Combine(::testing::Values("fp32", "fp16", "bf16"),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return NameOf(std::get<0>(info.param), std::get<1>(info.param));
                         });

// Of each grid every stage of ZeRO, or one of them by turns: each day, and under a sanitizer.
using StagesParameter = std::tuple<std::string, bool, bool>;
class GridStagesTest : public ::testing::TestWithParam<StagesParameter> {};
INSTANTIATE_TEST_SUITE_P(All, GridStagesTest,
                         ::testing::Combine(::testing::Values("fp32", "fp16", "bf16"),
                                            ::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return NameOf(std::get<0>(info.param), std::get<1>(info.param)) +
                                  (std::get<2>(info.param) ? "EveryStage" : "StagesByTurns");
                         });

TEST_P(GridStagesTest, AnyNumberOfTensorRanksGivesTheSameBits) {
  const auto& [precision, sequence_parallel, all] = GetParam();
  const bool by_turns = !all || testing::kSanitizer;
  const int turn = precision == "fp32" ? 0 : precision == "fp16" ? 1 : 2;
  for (int context = 1; context <= kMostRanks; ++context) {
    for (int data = 1; context * data <= kMostRanks; ++data) {
      const int shards = ShardsBeside(context, data);
      if (sequence_parallel && shards == 1) continue;
      GridCase grid = {.context = context, .data = data, .sequence_parallel = sequence_parallel};
      const Trained whole = Train(JobOf(grid, shards, 0, precision, kAdamW), context * data);
      for (grid.tensor = 1; grid.tensor <= shards; grid.tensor *= 2) {
        for (int stage = 0; stage < zero::kStages; ++stage) {
          if (by_turns && stage != (grid.tensor + context + data + turn) % zero::kStages) continue;
          SCOPED_TRACE(absl::StrCat("tensor ", grid.tensor, " of ", shards, ", context ", context,
                                    ", data ", data, ", stage ", stage));
          const Trained run =
              Train(JobOf(grid, shards, stage, precision, kAdamW), grid.tensor * context * data);
          ASSERT_EQ(run.losses.size(), static_cast<size_t>(kGridSteps));
          EXPECT_EQ(run.losses, whole.losses);
          EXPECT_EQ(run.held_out, whole.held_out);
          ExpectModelledMemoryAndTraffic(run, kGridSteps);
        }
      }
    }
  }
}

// The same of rings, stage by stage in turn.
TEST_P(GridProductTest, RingsGiveTheSameBitsForAnyNumberOfTensorRanks) {
  const auto& [precision, sequence_parallel] = GetParam();
  for (int context = 2; context <= kMostRanks; ++context) {
    for (int data = 1; context * data <= kMostRanks; ++data) {
      const int shards = ShardsBeside(context, data);
      if (sequence_parallel && shards == 1) continue;
      GridCase grid = {
          .context = context, .data = data, .sequence_parallel = sequence_parallel, .ring = true};
      const int first = (context + data) % zero::kStages;
      const Trained whole = Train(JobOf(grid, shards, first, precision, kAdamW), context * data);
      ExpectModelledMemoryAndTraffic(whole, kGridSteps);
      for (grid.tensor = 2; grid.tensor <= shards; grid.tensor *= 2) {
        const int stage = (first + grid.tensor) % zero::kStages;
        SCOPED_TRACE(absl::StrCat("tensor ", grid.tensor, " of ", shards, ", ring of ", context,
                                  ", data ", data, ", stage ", stage));
        const Trained run =
            Train(JobOf(grid, shards, stage, precision, kAdamW), grid.tensor * context * data);
        ASSERT_EQ(run.losses.size(), static_cast<size_t>(kGridSteps));
        EXPECT_EQ(run.losses, whole.losses);
        EXPECT_EQ(run.held_out, whole.held_out);
        ExpectModelledMemoryAndTraffic(run, kGridSteps);
      }
    }
  }
}

// Sums over ranks are in another order than those of one rank, and of 16-bit types rounded more
// often. Known: in fp32 losses agree to about 1e-5.
TEST(GridTrainingTest, AllGridsTrainAsOneRankUpToRounding) {
  for (const std::string precision : {"fp32", "fp16", "bf16"}) {
    const double bound = precision == "fp32" ? 1e-4 : 0.02;
    for (const GridCase& grid :
         {GridCase{.tensor = 4}, GridCase{.context = 4},
          GridCase{.tensor = 2, .context = 2, .data = 2},
          GridCase{.tensor = 4, .data = 2, .sequence_parallel = true},
          GridCase{.tensor = 4, .tensor_overlap = 3},
          GridCase{.tensor = 2, .sequence_parallel = true, .tensor_overlap = 4},
          GridCase{.context = 3, .data = 2}, GridCase{.context = 4, .ring = true},
          GridCase{.tensor = 2, .context = 2, .data = 2, .ring = true},
          GridCase{.context = 3, .data = 2, .ring = true}}) {
      SCOPED_TRACE(absl::StrCat(precision, ", tensor ", grid.tensor, ", context ", grid.context,
                                grid.ring ? " in a ring" : "", ", data ", grid.data));
      const Job job = JobOf(grid, grid.tensor, 2, precision, kAdamW);
      Job alone = job;
      alone.config = train::ParseConfig(Config(2 * grid.data, 0, "fp32"), 1).value();
      alone.model.tensor_shards = 1;
      alone.model.sequence_parallel = false;
      alone.model.tensor_pieces = 1;
      const Trained whole = Train(alone, 1);
      const Trained run = Train(job, grid.tensor * grid.context * grid.data);
      ASSERT_EQ(run.losses.size(), whole.losses.size());
      for (size_t step = 0; step < run.losses.size(); ++step) {
        EXPECT_NEAR(run.losses[step], whole.losses[step], bound * whole.losses[step]) << step;
        EXPECT_NEAR(run.grad_norms[step], whole.grad_norms[step],
                    5 * bound * whole.grad_norms[step])
            << step;
      }
      EXPECT_NEAR(run.held_out, whole.held_out, bound * whole.held_out);
    }
  }
}

// Recomputation, dropout, micro-batches, offload and gathered inputs change memory, traffic and
// movement, and no bit of what tensor ranks compute.
TEST(GridTrainingTest, FeaturesMeetOnGrids) {
  constexpr int kShards = 4;
  for (const GridCase& grid :
       {GridCase{.tensor = 2, .data = 2, .sequence_parallel = true},
        GridCase{.tensor = 4, .sequence_parallel = true}, GridCase{.tensor = 4, .data = 2},
        GridCase{.tensor = 2, .context = 2},
        GridCase{.tensor = 2, .context = 2, .sequence_parallel = true},
        GridCase{.tensor = 4, .data = 2, .tensor_overlap = 2},
        GridCase{.tensor = 2, .context = 2, .sequence_parallel = true, .tensor_overlap = 2},
        GridCase{.tensor = 2, .context = 2, .ring = true},
        GridCase{.tensor = 2, .context = 3, .sequence_parallel = true, .ring = true}}) {
    const auto job_of = [&](const GridCase& each, int stage) {
      Job job = JobOf(each, kShards, stage, "bf16", kAdamW);
      job.model.layers = 3;
      job.steps = 4;
      job.config.dropout = 0.2;
      job.config.batch.gradient_accumulation_steps = job.config.zero.micro_batches = 2;
      job.config.batch.train_batch_size *= 2;
      return job;
    };
    GridCase one_rank = grid;
    one_rank.tensor = 1;
    const Trained whole = Train(job_of(one_rank, 0), grid.context * grid.data);
    int stage = 0;
    for (const char* const policy : {"none", "block", "selective", "segments:2", "budget:0"}) {
      for (const bool keeps_gathered : {false, true}) {
        if (keeps_gathered && !grid.sequence_parallel) continue;
        Job job = job_of(grid, ++stage % zero::kStages);
        job.config.keep_gathered = keeps_gathered;
        if (policy == std::string("budget:0")) {
          job.config.recompute = {
              .kind = recompute::Policy::Kind::kBudget,
              .budget_bytes = recompute::LeastBudget(ActivationChain(ShapeOf(job))).value()};
        } else {
          job.config.recompute = recompute::ParsePolicy(policy).value();
        }
        if (policy == std::string("block")) {
          job.config.recompute.stash = recompute::StashTier::kHost;
        }
        if (job.config.zero.stage > 0) {
          job.config.zero.offload.optimizer_state = device::Tier::kHost;
        }
        SCOPED_TRACE(absl::StrCat("tensor ", grid.tensor, ", context ", grid.context,
                                  grid.ring ? " in a ring" : "", ", data ", grid.data, ", stage ",
                                  job.config.zero.stage, ", ", policy,
                                  keeps_gathered ? ", gathered inputs kept" : ""));
        const Trained run = Train(job, grid.tensor * grid.context * grid.data);
        EXPECT_EQ(run.losses, whole.losses);
        EXPECT_EQ(run.held_out, whole.held_out);
        ExpectModelledMemoryAndTraffic(run, job.steps);
      }
    }
  }
}

// Sums in 16 bits instead of 32: half of what tensor ranks send but for the embedding's, which goes
// in the model's type always, and rows' numbers.
TEST(GridTrainingTest, SumsInTheModelsTypeTakeLessTrafficAndChangeLossesByRoundingAlone) {
  constexpr auto kTensor = static_cast<size_t>(parallel::GridGroup::kTensor);
  for (const std::string precision : {"fp16", "bf16"}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(absl::StrCat(precision, sequence_parallel ? ", sequence parallel" : ""));
      Job job = JobOf({.tensor = 4, .data = 2, .sequence_parallel = sequence_parallel}, 4, 2,
                      precision, kAdamW);
      const Trained exact = Train(job, 8);
      job.config.sum_wire = parallel::SumWire::kModel;
      const Trained rounded = Train(job, 8);
      ExpectModelledMemoryAndTraffic(rounded, kGridSteps);
      EXPECT_NE(rounded.losses, exact.losses);
      ASSERT_EQ(rounded.losses.size(), exact.losses.size());
      for (size_t step = 0; step < exact.losses.size(); ++step) {
        EXPECT_NEAR(rounded.losses[step], exact.losses[step], 0.02 * exact.losses[step]) << step;
      }
      // Of two blocks and the head: 9 sums, in the forward and the backward pass.
      const train::RankSummary &a = exact.outcome.ranks[0], &b = rounded.outcome.ranks[0];
      const int64_t elements = ShapeOf(job).rows() * job.model.width;
      const int64_t sent = (sequence_parallel ? 1 : 2) * elements * 3 / 4;
      EXPECT_EQ(a.sent_of_step[kTensor] - b.sent_of_step[kTensor], 9 * sent * 2);
    }
  }
}

// Pieces of products are a part of the model, as shards are: neither the number of ranks that share
// it nor what runs beside what changes a bit, or the memory and traffic that are foretold.
TEST_P(GridProductTest, OverlapChangesNoBit) {
  const auto& [precision, sequence_parallel] = GetParam();
  constexpr int kShards = 4;
  // Of 16 rows; three pieces are unequal.
  for (const int pieces : {1, 3}) {
    const auto job_of = [&](int tensor, int stage) {
      Job job = JobOf(
          {.tensor = tensor, .sequence_parallel = sequence_parallel, .tensor_overlap = pieces},
          kShards, stage, precision, kAdamW);
      job.steps = 3;
      return job;
    };
    const Trained whole = Train(job_of(1, 0), 1);
    for (const int tensor : {2, 4}) {
      for (const bool overlap : {false, true}) {
        Job job = job_of(tensor, tensor % zero::kStages);
        job.config.tensor_overlap = overlap;
        SCOPED_TRACE(absl::StrCat(pieces, " pieces, tensor ", tensor, overlap ? ", overlap" : ""));
        const Trained run = Train(job, tensor);
        ASSERT_EQ(run.losses.size(), static_cast<size_t>(job.steps));
        EXPECT_EQ(run.losses, whole.losses);
        EXPECT_EQ(run.held_out, whole.held_out);
        ExpectModelledMemoryAndTraffic(run, job.steps);
      }
    }
  }
}

// Memory by ranks: weights and activations of a rank shrink as the model is shared.
TEST(GridTrainingTest, SequenceParallelRanksShareAllActivations) {
  constexpr auto kActivations = static_cast<int>(device::Purpose::kActivations);
  const auto bytes_of = [&](int tensor, bool sequence_parallel) {
    Job job =
        JobOf({.tensor = tensor, .sequence_parallel = sequence_parallel}, 4, 3, "fp32", kAdamW);
    job.model.width = 64;
    job.model.layers = 8;
    const Trained run = Train(job, tensor);
    return static_cast<double>(run.outcome.ranks[0].memory[kActivations]);
  };
  const double whole = bytes_of(1, false);
  const double cut = bytes_of(4, false), shared = bytes_of(4, true);
  // Per block, in widths of rows: 2 norms, the middle and the output of 15 are not cut.
  EXPECT_GT(cut / whole, 0.42);
  EXPECT_LT(shared / whole, 0.32);
}

TEST(GridTrainingTest, AnErrorOfOneRankEndsAllAndNamesIt) {
  struct EndsAtStep3 final : train::Observer {
    absl::Status OnStep(const train::StepMetrics& metrics) override {
      return metrics.step == 3 ? absl::DataLossError("full disk") : absl::OkStatus();
    }
    absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }
  } observer;
  const std::atomic<bool> stop = false;
  const Job job = JobOf({.tensor = 2, .context = 2, .data = 2}, 2, 3, "fp16", kAdamW);
  EXPECT_THAT(TrainOnThreads(job, 8, {&observer, nullptr, &stop}).status(),
              testing::StatusIs(absl::StatusCode::kDataLoss,
                                "grid of tensor 2 x context 2 x data 2 x pipeline 1, rank 0 at "
                                "tensor 0, context 0, data 0, pipeline 0: full disk"));
}

TEST(GridTrainingTest, WhatCannotBeSharedIsNamed) {
  const auto error_of = [](const GridCase& grid, int shards, auto change) {
    Job job = JobOf(grid, shards, 0, "fp32", kAdamW);
    change(job);
    const std::atomic<bool> stop = false;
    return TrainOnThreads(job, grid.tensor * grid.context * grid.data, {nullptr, nullptr, &stop})
        .status();
  };
  const auto named = [](const char* text) {
    return testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(text));
  };
  EXPECT_THAT(error_of({.tensor = 2}, 2,
                       [](Job& job) {
                         job.model.heads = 3;
                         job.model.width = 12;
                       }),
              named("the model's heads, which are 3 cannot be cut into 2 tensor shards"));
  EXPECT_THAT(error_of({.tensor = 2}, 2,
                       [](Job& job) {
                         job.model.tensor_shards = job.config.tensor_shards = 3;
                         job.model.heads = 3;
                         job.model.width = 12;
                       }),
              named("the model's vocabulary, which has 256 cannot be cut into 3 tensor shards"));
  EXPECT_THAT(error_of({.context = 2}, 1, [](Job& job) { job.model.context = 15; }),
              named("2 context ranks cannot share texts of 15 bytes"));
  EXPECT_THAT(error_of({.context = 2}, 1,
                       [](Job& job) {
                         job.model.heads = 3;
                         job.model.width = 12;
                       }),
              named("2 context ranks cannot share the 3 heads of a tensor shard"));
  EXPECT_THAT(error_of({.context = 2, .ring = true}, 1, [](Job& job) { job.model.context = 14; }),
              named("14 positions cannot be cut into two chunks for each of 2 context ranks"));
  EXPECT_THAT(error_of({.tensor = 4, .sequence_parallel = true}, 4,
                       [](Job& job) { job.model.context = 5; }),
              named("sequence parallelism: 10 rows (2 texts of 5 positions) cannot be cut into 4 "
                    "blocks"));
  EXPECT_THAT(error_of({.tensor = 2, .tensor_overlap = 2}, 2,
                       [](Job& job) { job.model.tensor_pieces = 257; }),
              named("the model's number of pieces of products is 257; it must be 1 to 256"));
  EXPECT_THAT(error_of({.data = 2}, 1, [](Job& job) { job.model.tensor_pieces = 2; }),
              named("the model's products are cut into 2 pieces, but of a model of one tensor "
                    "shard nothing is exchanged"));
  EXPECT_THAT(error_of({.tensor = 2}, 2, [](Job& job) { job.config.grid.tensor = 4; }),
              named("tensor 4"));
  EXPECT_THAT(train::ParseConfig(Config(8, 0, "fp32"), 6, ".", {.tensor = 4}).status(),
              named("6 ranks cannot be shared out by --tensor 4: 4 does not divide 6"));
  EXPECT_THAT(
      train::ParseConfig(Config(8, 0, "fp32"), 4, ".",
                         {.context_exchange = train::ContextExchange::kRing})
          .status(),
      named("--context_exchange is \"ring\", but no ranks share texts: --context_parallel is not "
            "above 1"));
  EXPECT_THAT(
      train::ParseConfig(Config(8, 0, "fp32"), 4, ".", {.tensor = 4, .tensor_shards = 2}).status(),
      named("--tensor_shards is 2, but 4 ranks cannot share 2 shards"));
}

}  // namespace
}  // namespace brigade::gpt
