// Weights on a grid, step by step: what several ranks have, they have with the same bits, and no
// delay of a stream changes one.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/examples/gpt/rank_part.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/stage_setup.h"
#include "brigade/train/step_batch.h"
#include "brigade/zero/zero_optimizer.h"
#include "gtest/gtest.h"

namespace brigade::gpt {
namespace {

using collectives::Rank;
using parallel::GridGroup;

// Of the bytes of each parameter.
using Digests = std::vector<int64_t>;

// One rank of the job's grid, without a trainer around it.
class RankOfGrid {
 public:
  RankOfGrid(const Job& job, Rank& self)
      : job_(job),
        self_(self),
        grid_(parallel::Grid::Create(job.config.grid, *self.communicator).value()),
        shape_(ShapeOf(job, grid_->coordinates())) {
    model_ = std::make_unique<RankPart>(RankPart::Parts{.job = job,
                                                        .model = job.model,
                                                        .corpus = job.corpus,
                                                        .grid = *grid_,
                                                        .context = *self.context,
                                                        .compute = self.stream.get(),
                                                        .recorder = nullptr});
    const parallel::PipelineShape pipeline = job.config.pipeline_shape();
    executor_ =
        parallel::PipelineExecutor::Create(train::ListsOf(pipeline).value(), BoundaryOf(shape_),
                                           *grid_, *self.context, *self.stream)
            .value();
    EXPECT_OK(model_->Plan(executor_->stage(), executor_->buffers()));
    const train::ZeroGroups groups =
        train::CreateZeroGroups(job.config, *grid_, model_->is_tied_outside()).value();
    zero_ = zero::ZeroOptimizer::Create(
                model_->spec(), train::ZeroOptionsOf(job.config, *model_, executor_->list()),
                groups.shards, *self.context, *self.stream, groups.outer)
                .value();
    EXPECT_OK(model_->Allocate(*zero_));
    batch_.emplace(train::StepBatch::Create(model_->batch_shape(), job.config.zero.micro_batches,
                                            *self.context)
                       .value());
    EXPECT_OK(zero_->InitializeParameters([&](int parameter, absl::Span<float> values) {
      return model_->Initialize(parameter, values);
    }));
  }

  parallel::Grid& grid() { return *grid_; }

  absl::Status Step(int64_t step) {
    BRIGADE_RETURN_IF_ERROR(model_->WriteStep(step, *batch_));
    BRIGADE_RETURN_IF_ERROR(batch_->CopyToDevice({}, *self_.stream));
    BRIGADE_RETURN_IF_ERROR(executor_->Run(model_->Train(*batch_)));
    return executor_->Synchronize();
  }

  // Of the weights that a forward pass sees, by the model's numbers; 0 of those of other stages.
  absl::StatusOr<Digests> Weights() {
    Digests digests(static_cast<size_t>(HeadParameter(job_.model, kFinalNormBias)) + 1);
    for (int u = 0; u < part().units(); ++u) {
      zero::UnitScope unit(*zero_, u, zero::Pass::kForward);
      for (const int parameter : zero_->plan().unit(u).parameters) {
        const void* const weights = unit.weights(parameter);
        BRIGADE_RETURN_IF_ERROR(unit.status());
        const int64_t bytes = shape_.bytes_of(zero_->plan().parameter(parameter).spec.size);
        int64_t& digest =
            digests[static_cast<size_t>(part().parameters()[static_cast<size_t>(parameter)])];
        BRIGADE_RETURN_IF_ERROR(self_.stream->Enqueue(
            {"digest", {device::Reads(weights, bytes)}},
            [&digest, weights, bytes = static_cast<size_t>(bytes)](device::ThreadPool&) {
              digest = static_cast<int64_t>(
                  std::hash<std::string_view>()({static_cast<const char*>(weights), bytes}));
              return absl::OkStatus();
            }));
      }
      BRIGADE_RETURN_IF_ERROR(unit.Release());
    }
    BRIGADE_RETURN_IF_ERROR(self_.stream->Synchronize());
    return digests;
  }

  // Ranks of the group have those of these digests that it shares, and no others.
  absl::Status ExpectShared(const Digests& mine, GridGroup which) {
    if (grid_->group(which) == nullptr) return absl::OkStatus();
    collectives::Communicator& group = *grid_->group(which);
    BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, group.AllGatherHost(mine));
    for (size_t p = 0; p < mine.size(); ++p) {
      const bool is_cut = ShardOf(job_.model, static_cast<int>(p)).axis.has_value();
      if (which == GridGroup::kTensor && is_cut) continue;
      if (which == GridGroup::kTied &&
          (p != kTokens || part().has_embedding() == part().has_head())) {
        continue;
      }
      for (int rank = 0; rank < group.size(); ++rank) {
        EXPECT_EQ(all[static_cast<size_t>(rank) * mine.size() + p], mine[p])
            << "parameter " << p << " on ranks " << rank << " and " << group.rank() << " of the "
            << parallel::Name(which) << " group";
      }
    }
    return absl::OkStatus();
  }

 private:
  const ModelPart& part() const { return model_->plan().part; }

  const Job& job_;
  Rank& self_;
  std::unique_ptr<parallel::Grid> grid_;
  const PassShape shape_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
  std::unique_ptr<parallel::PipelineExecutor> executor_;
  std::unique_ptr<RankPart> model_;
  std::optional<train::StepBatch> batch_;
};

constexpr GridCase kGrids[] = {
    {.tensor = 4, .data = 2},
    {.tensor = 4, .data = 2, .sequence_parallel = true},
    {.tensor = 2, .context = 2, .data = 2, .sequence_parallel = true},
    {.tensor = 8, .sequence_parallel = true, .tensor_overlap = 2},
    {.tensor = 2, .context = 2, .data = 2, .tensor_overlap = 3, .ring = true},
    {.tensor = 2, .data = 2, .pipeline = 2, .schedule = "zb-h1", .micro_batches = 3},
    {.data = 2, .pipeline = 4, .micro_batches = 4},
    {.tensor = 2, .pipeline = 2, .schedule = "zb-v", .micro_batches = 2},
    {.context = 2, .pipeline = 2, .schedule = "interleaved:2", .micro_batches = 2},
};

TEST(GridParametersTest, ReplicasHaveTheSameBitsAfterEveryStep) {
  int stage = 0;
  for (const std::string precision : {"fp32", "fp16", "bf16"}) {
    for (const GridCase& grid : kGrids) {
      const Job job = JobOf(grid, 8, ++stage % zero::kStages, precision, kAdamW);
      SCOPED_TRACE(
          absl::StrCat(precision, ", ", ToString(grid), ", stage ", job.config.zero.stage));
      collectives::OnThreads({.size = grid.ranks()}, [&](Rank& self) {
        RankOfGrid rank(job, self);
        Digests first, last;
        for (int64_t step = 0; step < kGridSteps; ++step) {
          ASSERT_OK(rank.Step(step));
          const auto weights = rank.Weights();
          ASSERT_OK(weights);
          last = *weights;
          if (step == 0) first = last;
          ASSERT_OK(rank.ExpectShared(last, GridGroup::kTensor));
          ASSERT_OK(rank.ExpectShared(last, GridGroup::kReplica));
          ASSERT_OK(rank.ExpectShared(last, GridGroup::kTied));
        }
        EXPECT_TRUE(first != last);
        self.AwaitOthers();
      });
    }
  }
}

// With 36 seeds in all, by turns over stages and grids; the race checker sees each of them.
TEST(GridParametersTest, DelaysChangeNoBitAndNothingIsUnordered) {
  constexpr uint64_t kSeeds = 4;
  for (const GridCase& grid : kGrids) {
    std::vector<Digests> wanted(static_cast<size_t>(grid.ranks()));
    for (uint64_t seed = 0; seed <= kSeeds; ++seed) {
      const Job job = JobOf(grid, 8, static_cast<int>(seed % zero::kStages), "bf16", kAdamW);
      SCOPED_TRACE(
          absl::StrCat(ToString(grid), ", seed ", seed, ", stage ", job.config.zero.stage));
      device::RaceChecker checker;
      collectives::RanksOptions options = {.size = grid.ranks(), .race_checker = &checker};
      if (seed > 0) options.random_delay = {.seed = 100 * seed, .max_delay_us = 100};
      collectives::OnThreads(options, [&](Rank& self) {
        RankOfGrid rank(job, self);
        for (int64_t step = 0; step < 3; ++step) ASSERT_OK(rank.Step(step));
        const auto weights = rank.Weights();
        ASSERT_OK(weights);
        Digests& digests = wanted[static_cast<size_t>(self.rank)];
        if (seed == 0) digests = *weights;
        EXPECT_TRUE(*weights == digests) << "rank " << self.rank;
        self.AwaitOthers();
      });
      EXPECT_TRUE(checker.reports().empty());
    }
  }
}

}  // namespace
}  // namespace brigade::gpt
