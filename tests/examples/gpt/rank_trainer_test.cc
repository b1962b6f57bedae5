// Ranks over NCCL, on its stand-in: grids, and the end of a group on an engine whose streams go on
// after it, with arrays that hold no results. The trainer tells nobody of what lies in them.

#include "brigade/train/rank_trainer.h"
#include "brigade/examples/gpt/task.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/examples/gpt/pipeline_parts.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "brigade/train/observers/history.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Rank;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

const auto kEnds = StatusIs(absl::StatusCode::kCancelled, "rank 1 has enough");

class RankTrainerTest : public collectives::NcclTest {
 protected:
  using Body = std::function<void(Rank& self, train::RankTrainer& trainer)>;

  RankTrainerTest() {
    job_.model = {.layers = 1, .heads = 2, .width = 16, .context = 16};
    job_.config =
        train::ParseConfig(R"({"train_batch_size": 2, "optimizer": {"type": "SGD"}})", 2).value();
    job_.corpus = ReadLicences().value();
    job_.corpus.held_out.resize(100);
    job_.steps = 6;
  }

  void OnTrainers(const Body& body, int ranks = 2) {
    const collectives::RanksOptions options = {.size = ranks};
    collectives::OnRanks(options, collectives::NcclEngines(options), [&](Rank& self) {
      train::Recorder recorder(nullptr);
      const auto grid = parallel::Grid::Create(job_.config.grid, *self.communicator).value();
      const Task task(job_);
      auto trainer =
          train::RankTrainer::Create(job_, task, *grid, *self.context, *self.stream, recorder);
      ASSERT_OK(trainer);
      body(self, **trainer);
      self.AwaitOthers();
    });
  }

  Job job_;
  const std::atomic<bool> stop_ = false;
};

// Ends the group when the other rank has had the time to come to where it waits for this one.
absl::Status EndTheGroup(Rank& self) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const absl::Status reason = absl::CancelledError("rank 1 has enough");
  self.communicator->Abort(reason);
  return reason;
}

TEST_F(RankTrainerTest, AnEvaluationWhoseSumIsAbortedIsAnError) {
  OnTrainers([&](Rank& self, train::RankTrainer& trainer) {
    if (self.rank == 1) return static_cast<void>(EndTheGroup(self));
    train::History history;
    EXPECT_THAT(trainer.Train(&history, stop_).status(), kEnds);
    EXPECT_THAT(history.evaluations(), IsEmpty());
  });
}

TEST_F(RankTrainerTest, AStepWhoseSumsAreAbortedIsAnError) {
  struct EndsAtStep3 final : train::Observer {
    explicit EndsAtStep3(Rank& rank) : self(rank) {}
    absl::Status OnStep(const train::StepMetrics& metrics) override {
      return metrics.step == 3 ? EndTheGroup(self) : absl::OkStatus();
    }
    absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }
    Rank& self;
  };
  OnTrainers([&](Rank& self, train::RankTrainer& trainer) {
    train::History history;
    EndsAtStep3 ends(self);
    train::Observer* const observer =
        self.rank == 1 ? static_cast<train::Observer*>(&ends) : &history;
    EXPECT_THAT(trainer.Train(observer, stop_).status(), kEnds);
    // Rank 1 has enqueued step 4 before it sees the metrics of step 3.
    EXPECT_LE(history.steps().size(), 4u);
  });
}

TEST_F(RankTrainerTest, SummariesWhoseGatherIsAbortedAreAnError) {
  OnTrainers([&](Rank& self, train::RankTrainer& trainer) {
    if (self.rank == 1) return static_cast<void>(EndTheGroup(self));
    EXPECT_THAT(trainer.Gather({}).status(), kEnds);
  });
}

TEST_F(RankTrainerTest, GridsHaveTheLossesOfThreads) {
  for (const GridCase& grid :
       {GridCase{.tensor = 2, .data = 2, .sequence_parallel = true},
        GridCase{.tensor = 2, .context = 2}, GridCase{.tensor = 4},
        GridCase{.data = 2, .pipeline = 2, .schedule = "interleaved:2", .micro_batches = 2},
        GridCase{.tensor = 2, .pipeline = 2, .schedule = "zb-v"},
        GridCase{.pipeline = 4, .schedule = "zb-h1", .micro_batches = 3}}) {
    constexpr int kRanks = 4;
    for (int stage = 0; stage < zero::kStages; ++stage) {
      SCOPED_TRACE(absl::StrCat(ToString(grid), ", stage ", stage));
      job_ = JobOf(grid, grid.tensor, stage, "bf16", kAdamW);
      job_.steps = 4;
      const Trained on_threads = Train(job_, kRanks);
      train::History history;
      OnTrainers(
          [&](Rank& self, train::RankTrainer& trainer) {
            EXPECT_OK(trainer.Train(self.rank == 0 ? &history : nullptr, stop_));
            const auto summary = trainer.Summary();
            ASSERT_OK(summary);
            for (size_t g = 0; g < summary->sent.size(); ++g) {
              EXPECT_EQ(summary->sent[g], job_.steps * summary->sent_of_step[g]) << g;
            }
          },
          kRanks);
      std::vector<double> losses;
      for (const train::StepMetrics& step : history.steps()) losses.push_back(step.loss);
      EXPECT_EQ(losses, on_threads.losses);
    }
  }
}

// A limit within which the model is cut elsewhere than without one; 0: there is none.
int64_t LimitThatMovesACut(const Job& job) {
  const PassShape shape = ShapeOf(job);
  const parallel::PipelineShape pipeline = job.config.pipeline_shape();
  const std::vector<int> without =
      PartsOf(shape, pipeline, job.config.partition, {}, nullptr).value();
  Job limited = job;
  for (limited.device_limit_bytes = 1 << 30;;
       limited.device_limit_bytes -= limited.device_limit_bytes / 16) {
    const parallel::MemoryLimit limit = *MemoryLimitOf(limited, shape, pipeline);
    const auto parts = PartsOf(shape, pipeline, job.config.partition, {}, &limit);
    if (!parts.ok()) return 0;
    if (*parts != without) return limited.device_limit_bytes;
  }
}

// Each would train layers that another stage has too, or that no stage has.
TEST_F(RankTrainerTest, StagesWhoseMemoryGivesThemOtherPartsDoNotTrain) {
  job_ = JobOf({.pipeline = 2, .schedule = "gpipe", .micro_batches = 4}, 1, 1, "bf16", kAdamW);
  job_.model.layers = 5;
  const int64_t limit = LimitThatMovesACut(job_);
  ASSERT_GT(limit, 0);
  const collectives::RanksOptions options = {.size = 2};
  collectives::OnRanks(options, collectives::NcclEngines(options), [&](Rank& self) {
    Job job = job_;
    if (self.rank == 1) job.device_limit_bytes = limit;
    train::Recorder recorder(nullptr);
    const auto grid = parallel::Grid::Create(job.config.grid, *self.communicator).value();
    const Task task(job);
    EXPECT_THAT(train::RankTrainer::Create(job, task, *grid, *self.context, *self.stream, recorder)
                    .status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         MatchesRegex("ranks disagree: rank 0 has parts of the model from its "
                                      "stages 0, ., 7; rank 1 has parts of .* 0, ., 7")));
    self.AwaitOthers();
  });
}

// The other one waits for it in the trial's exchanges.
TEST_F(RankTrainerTest, ATrialThatFailsOnOneTensorRankEndsBothWithItsError) {
  job_ = JobOf({.tensor = 2}, 2, 1, "bf16", kAdamW);
  job_.config.recompute_times = train::RecomputeTimes::kMeasured;
  train::Recorder recorder(nullptr), sees_nothing(nullptr);
  const collectives::RanksOptions options = {.size = 2, .tracer = &recorder.tracer()};
  collectives::OnRanks(options, collectives::NcclEngines(options), [&](Rank& self) {
    const auto grid = parallel::Grid::Create(job_.config.grid, *self.communicator).value();
    const Task task(job_);
    const absl::Status status =
        train::RankTrainer::Create(job_, task, *grid, *self.context, *self.stream,
                                   self.rank == 1 ? sees_nothing : recorder)
            .status();
    EXPECT_THAT(grid->Abort(status),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("the recorder has not seen the passes of the trial")));
    self.AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::gpt
