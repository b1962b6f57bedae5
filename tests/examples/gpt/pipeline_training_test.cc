// Trainings of a pipeline: whatever the number of stages, the schedule, the chunks and the stage of
// ZeRO, and whoever else shares the model, the bits of a training without a pipeline.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/recompute/policy.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/examples/gpt/trained.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

constexpr int kMicroBatches = 4;
constexpr int kShards = 4;
constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v"};

// With layers for two chunks on each of four stages.
Job PipelineJob(GridCase grid, int stage, const std::string& precision) {
  grid.micro_batches = kMicroBatches;
  Job job = JobOf(grid, kShards, stage, precision, kAdamW);
  job.model.layers = 6;
  job.corpus.held_out.resize(500);
  // In fp16 the scale overflows on the way: some steps are skipped.
  if (precision == "fp16") {
    job.config.zero.loss_scaler.initial_scale_power = 18;
    job.config.zero.loss_scaler.loss_scale_window = 4;
    job.config.zero.loss_scaler.hysteresis = 1;
  }
  return job;
}

Trained TrainGrid(const GridCase& grid, const Job& job) { return Train(job, grid.ranks()); }

void ExpectSameTraining(const Trained& run, const Trained& whole, int64_t steps) {
  ASSERT_EQ(run.losses.size(), static_cast<size_t>(steps));
  EXPECT_EQ(run.losses, whole.losses);
  EXPECT_EQ(run.held_out, whole.held_out);
  ASSERT_EQ(run.grad_norms.size(), whole.grad_norms.size());
  for (size_t step = 0; step < run.grad_norms.size(); ++step) {
    // Summed in another order, in double; both infinite where a step is skipped.
    if (run.grad_norms[step] == whole.grad_norms[step]) continue;
    EXPECT_NEAR(run.grad_norms[step], whole.grad_norms[step], 1e-12 * whole.grad_norms[step]);
  }
}

// Calls visit(grid) for all grids that a pipeline of up to so many ranks can be, with every
// schedule.
void ForEachPipeline(int most_ranks, const std::function<void(const GridCase&)>& visit) {
  for (int data = 1; data <= 4; data *= 2) {
    for (int pipeline = 2; pipeline <= 4; pipeline *= 2) {
      for (int tensor = 1; tensor * data * pipeline <= most_ranks; tensor *= 2) {
        for (const char* const schedule : kSchedules) {
          visit({.tensor = tensor, .data = data, .pipeline = pipeline, .schedule = schedule});
        }
      }
    }
  }
}

// What a pipeline's training of so many steps is to be: without one, of as many data ranks.
class Whole {
 public:
  explicit Whole(int64_t steps) : steps_(steps) {}

  const Trained& Of(int data, const std::string& precision) {
    const auto [found, is_new] = trained_.try_emplace({data, precision});
    if (is_new) {
      found->second = TrainGrid({.data = data}, JobOf({.data = data}, 0, precision));
      if (precision == "fp16") {
        // There was an overflow, and not always.
        EXPECT_THAT(found->second.grad_norms, ::testing::Contains(::testing::Gt(1e30)));
        EXPECT_THAT(found->second.grad_norms, ::testing::Contains(::testing::Lt(1e3)));
      }
    }
    return found->second;
  }

  void ExpectSame(const GridCase& grid, int stage, const std::string& precision) {
    SCOPED_TRACE(absl::StrCat(ToString(grid), ", stage ", stage, ", ", precision));
    const Trained run = TrainGrid(grid, JobOf(grid, stage, precision));
    ExpectSameTraining(run, Of(grid.data, precision), steps_);
    ExpectModelledMemoryAndTraffic(run, steps_);
  }

 private:
  Job JobOf(const GridCase& grid, int stage, const std::string& precision) const {
    Job job = PipelineJob(grid, stage, precision);
    job.steps = steps_;
    return job;
  }

  const int64_t steps_;
  std::map<std::pair<int, std::string>, Trained> trained_;
};

TEST(PipelineTrainingTest, EverySmallGridAndScheduleHasTheBitsOfATrainingWithoutAPipeline) {
  Whole whole(6);
  // Types and stages of ZeRO by turns.
  const std::string precisions[] = {"fp32", "fp16", "bf16"};
  int turn = 0;
  ForEachPipeline(4, [&](const GridCase& grid) {
    whole.ExpectSame(grid, turn % zero::kStages, precisions[turn % 3]);
    ++turn;
  });
  EXPECT_EQ(turn, 20);
}

class PipelineGridsSoakTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, PipelineGridsSoakTest, ::testing::Values("fp32", "fp16", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(PipelineGridsSoakTest,
       EveryGridScheduleAndStageOfZeroHasTheBitsOfATrainingWithoutAPipeline) {
  Whole whole(kGridSteps);
  ForEachPipeline(kMostRanks, [&](const GridCase& grid) {
    for (int stage = 0; stage < zero::kStages; ++stage) whole.ExpectSame(grid, stage, GetParam());
  });
}

// Recomputation, dropout, offload, sequence and context parallelism change memory and traffic, and
// no bit. Each with every policy of recomputation, or by turns with one.
void ExpectThatFeaturesMeet(bool with_every_policy) {
  constexpr const char* kPolicies[] = {"none", "block", "selective", "segments:2",
                                       "budget:1000000"};
  int turn = 0;
  for (const GridCase& shared :
       {GridCase{.tensor = 2, .sequence_parallel = true}, GridCase{.context = 2},
        GridCase{.context = 2, .ring = true}, GridCase{.data = 2},
        GridCase{.tensor = 2, .sequence_parallel = true, .tensor_overlap = 2}}) {
    const auto job_of = [&](const GridCase& grid, int stage) {
      Job job = PipelineJob(grid, stage, "bf16");
      job.config.dropout = 0.2;
      job.steps = 4;
      return job;
    };
    GridCase one = shared;
    one.tensor = 1;
    const Trained whole = TrainGrid(one, job_of(one, 0));
    for (int p = 0; p < 5; ++p, ++turn) {
      // Of each five another one.
      if (!with_every_policy && p != 2 * (turn / 5) % 5) continue;
      const std::string policy = kPolicies[p];
      GridCase grid = shared;
      grid.pipeline = 2 + 2 * (turn % 2);
      grid.schedule = kSchedules[turn % 5];
      Job job = job_of(grid, turn % zero::kStages);
      job.config.recompute = recompute::ParsePolicy(policy).value();
      if (policy == "block") job.config.recompute.stash = recompute::StashTier::kHost;
      if (job.config.zero.stage > 0) {
        job.config.zero.offload.optimizer_state = device::Tier::kHost;
      }
      SCOPED_TRACE(absl::StrCat(ToString(grid), ", stage ", job.config.zero.stage, ", ", policy));
      const Trained run = TrainGrid(grid, job);
      ExpectSameTraining(run, whole, job.steps);
      ExpectModelledMemoryAndTraffic(run, job.steps);
    }
  }
}

TEST(PipelineTrainingTest, FeaturesMeetInAPipeline) { ExpectThatFeaturesMeet(false); }
TEST(PipelineSoakTest, FeaturesMeetInAPipelineWithEveryRecomputation) {
  ExpectThatFeaturesMeet(true);
}

// With all that can lie elsewhere on the host, or in files; evaluated between steps too.
Job OffloadedJob(const GridCase& grid, int stage, device::Tier tier) {
  Job job = PipelineJob(grid, stage, "bf16");
  job.steps = 8;
  job.evaluate_every = 3;
  zero::OffloadOptions& offload = job.config.zero.offload;
  offload.optimizer_state = tier;
  if (stage == 3) offload.parameters = tier;
  offload.file.directory = ::testing::TempDir();
  return job;
}

TEST(PipelineTrainingTest, ADelayedUpdateIsTheTrainingThatItIsWithoutAPipeline) {
  const auto job_of = [](const GridCase& grid, int stage) {
    Job job = OffloadedJob(grid, stage, device::Tier::kHost);
    job.config.zero.offload.delay_update = true;
    job.config.zero.offload.delay_warm_up = 2;
    return job;
  };
  const Trained whole = TrainGrid({}, job_of({}, 1));
  int stage = 0;
  for (const GridCase& grid : {GridCase{.pipeline = 2},
                               {.pipeline = 4, .schedule = "zb-h1"},
                               {.tensor = 2, .pipeline = 2, .schedule = "zb-v"}}) {
    SCOPED_TRACE(ToString(grid));
    const Job job = job_of(grid, ++stage);
    const Trained run = TrainGrid(grid, job);
    ExpectSameTraining(run, whole, job.steps);
    EXPECT_EQ(run.evaluated, whole.evaluated);
    ExpectModelledMemoryAndTraffic(run, job.steps);
  }
}

TEST(PipelineTrainingTest, AnInterruptedTrainingInFilesGoesOn) {
  struct StopsAtStep3 final : train::Observer {
    absl::Status OnStep(const train::StepMetrics& metrics) override {
      losses.push_back(metrics.loss);
      if (metrics.step == 3) stop = true;
      return absl::OkStatus();
    }
    absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }
    std::vector<double> losses;
    std::atomic<bool> stop = false;
  };
  const Trained whole = TrainGrid({}, PipelineJob({}, 1, "bf16"));
  int stage = 0;
  for (const GridCase& grid : {GridCase{.pipeline = 2, .schedule = "zb-h1"},
                               {.pipeline = 4},
                               {.pipeline = 2, .schedule = "interleaved:2"}}) {
    SCOPED_TRACE(ToString(grid));
    Job job = OffloadedJob(grid, ++stage, device::Tier::kFile);
    job.steps = kGridSteps;
    job.checkpoints.save = absl::StrCat(::testing::TempDir(), "/stage", stage);
    StopsAtStep3 interrupted;
    const auto outcome =
        TrainOnThreads(job, grid.ranks(), {&interrupted, nullptr, &interrupted.stop});
    ASSERT_OK(outcome);
    EXPECT_TRUE(outcome->interrupted);
    std::vector<double>& losses = interrupted.losses;
    EXPECT_LT(losses.size(), static_cast<size_t>(kGridSteps));
    job.checkpoints.resume = job.checkpoints.save;
    const Trained rest = TrainGrid(grid, job);
    losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(losses, whole.losses);
    EXPECT_EQ(rest.held_out, whole.held_out);
  }
}

// Layers that stages share unevenly, and a number of stages that is no power of two.
TEST(PipelineTrainingTest, AnyPartitionHasTheSameBits) {
  const auto job_of = [](const GridCase& grid, const std::string& partition) {
    Job job = PipelineJob(grid, 1, "fp32");
    job.steps = 4;
    if (!partition.empty()) {
      job.config.partition = parallel::ParsePartition(partition).value();
    }
    return job;
  };
  const Trained whole = TrainGrid({}, job_of({}, ""));
  const std::map<std::string, GridCase> cases = {
      {"0,1,8", {.pipeline = 2}},
      {"0,7,8", {.pipeline = 2, .schedule = "zb-h1"}},
      {"0,1,2,8", {.pipeline = 3, .schedule = "gpipe"}},
      {"0,2,3,4,6,8", {.pipeline = 5}},
      {"flops", {.pipeline = 3, .schedule = "zb-v"}},
      {"time", {.pipeline = 4}},
      {"0,1,2,3,4,5,6,7,8", {.pipeline = 8, .schedule = "zb-h1"}}};
  for (const auto& [partition, grid] : cases) {
    SCOPED_TRACE(absl::StrCat(ToString(grid), ", ", partition));
    const Trained run = TrainGrid(grid, job_of(grid, partition));
    ExpectSameTraining(run, whole, 4);
    ExpectModelledMemoryAndTraffic(run, 4);
  }
}

// A stage has the weights of its layers, and activations of as many micro-batches as the schedule
// keeps.
TEST(PipelineTrainingTest, StagesShareWeightsAndActivations) {
  const auto ranks_of = [](const GridCase& grid) {
    Job job = PipelineJob(grid, 1, "fp32");
    job.steps = 1;
    return TrainGrid(grid, job).outcome.ranks;
  };
  const auto activations = [](const train::RankSummary& rank) {
    return rank.memory[static_cast<int>(device::Purpose::kActivations)];
  };
  const auto whole = ranks_of({});
  const auto stages = ranks_of({.pipeline = 4});
  int64_t parameters = 0;
  for (const train::RankSummary& stage : stages) parameters += stage.parameters;
  // The tokens are on the first and on the last stage.
  EXPECT_EQ(parameters, whole[0].parameters + 256 * PipelineJob({}, 1, "fp32").model.width);
  // 1F1B keeps 4, 3, 2 and 1 micro-batches, of which the middle stages have as many layers.
  EXPECT_GT(activations(stages[1]), activations(stages[2]));
  const auto gpipe = ranks_of({.pipeline = 4, .schedule = "gpipe"});
  EXPECT_EQ(activations(gpipe[1]), activations(gpipe[2]));
  EXPECT_GT(activations(gpipe[1]), activations(stages[1]));
}

TEST(PipelineTrainingTest, AnErrorOfOneStageEndsAllAndNamesIt) {
  struct EndsAtStep3 final : train::Observer {
    absl::Status OnStep(const train::StepMetrics& metrics) override {
      return metrics.step == 3 ? absl::DataLossError("full disk") : absl::OkStatus();
    }
    absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }
  } observer;
  const std::atomic<bool> stop = false;
  const GridCase grid = {.data = 2, .pipeline = 2};
  EXPECT_THAT(TrainOnThreads(PipelineJob(grid, 3, "fp16"), 4, {&observer, nullptr, &stop}).status(),
              testing::StatusIs(absl::StatusCode::kDataLoss,
                                "grid of tensor 1 x context 1 x data 2 x pipeline 2, rank 0 at "
                                "tensor 0, context 0, data 0, pipeline 0: full disk"));
}

}  // namespace
}  // namespace brigade::gpt
