// Weights on a grid, step by step: what several ranks have, they have with the same bits, and no
// delay of a stream changes one.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/parallel/grid.h"
#include "brigade/recompute/planner.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/examples/gpt/grid_job.h"
#include "brigade/tests/testing/status_matchers.h"
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
    const recompute::Chain chain = ActivationChain(shape_);
    recompute::Schedule schedule =
        recompute::Place(chain, recompute::PlanNone(chain).value()).value();
    zero::ZeroOptions options = job.config.zero;
    options.backward_units = schedule.BackwardUses();
    spec_ = SpecOf(job.model, shape_.shards());
    zero_ = zero::ZeroOptimizer::Create(spec_, options, grid_->replica(), *self.context,
                                        *self.stream, {&grid_->world()})
                .value();
    transformer_ = Transformer::Create(shape_, PartPlan::Whole(job.model, std::move(schedule)),
                                       *self.context, {&grid_->tensor(), &grid_->context()})
                       .value();
    EXPECT_OK(zero_->InitializeParameters([&](int parameter, absl::Span<float> values) {
      InitializeParameter(job_.model, parameter, job_.seed, shape_.shards(), values);
      return absl::OkStatus();
    }));
    texts_.resize(
        static_cast<size_t>(shape_.batch * (shape_.positions() + std::ssize(shape_.runs()))));
    losses_.resize(static_cast<size_t>(shape_.rows()));
  }

  parallel::Grid& grid() { return *grid_; }

  absl::Status Step(int64_t step) {
    std::vector<uint8_t> text(static_cast<size_t>(job_.model.context + 1));
    const auto runs = shape_.runs();
    uint8_t* to = texts_.data();
    for (int64_t i = 0; i < shape_.batch; ++i) {
      SampleText(job_.corpus, job_.seed, step, grid_->coordinates().data * shape_.batch + i,
                 absl::MakeSpan(text));
      for (const parallel::PositionRun& run : runs) {
        to = std::copy_n(text.begin() + run.global, run.count + 1, to);
      }
    }
    const nn::Texts texts = {texts_.data(), shape_.batch, shape_.positions(), std::ssize(runs)};
    device::Stream& stream = *self_.stream;
    BRIGADE_RETURN_IF_ERROR(transformer_->Forward({}, texts, losses_.data(), {}, *zero_, stream));
    BRIGADE_RETURN_IF_ERROR(zero_->ScaleLoss(&one_, &seed_, 1, precision::DType::kFloat32));
    BRIGADE_RETURN_IF_ERROR(transformer_->Backward({}, texts, &seed_, {}, *zero_, stream));
    BRIGADE_RETURN_IF_ERROR(zero_->FinishBackward());
    BRIGADE_RETURN_IF_ERROR(zero_->Step());
    return stream.Synchronize();
  }

  // Of the weights that a forward pass sees.
  absl::StatusOr<Digests> Weights() {
    Digests digests(static_cast<size_t>(HeadParameter(job_.model, kFinalNormBias)) + 1);
    for (size_t u = 0; u < spec_.size(); ++u) {
      zero::UnitScope unit(*zero_, static_cast<int>(u), zero::Pass::kForward);
      for (const int parameter : ParametersOf(static_cast<int>(u))) {
        const void* const weights = unit.weights(parameter);
        BRIGADE_RETURN_IF_ERROR(unit.status());
        const int64_t size = ShardOf(job_.model, parameter).local_size(shape_.shards());
        BRIGADE_RETURN_IF_ERROR(self_.stream->Enqueue(
            {"digest", {device::Reads(weights, shape_.bytes_of(size))}},
            [&digest = digests[static_cast<size_t>(parameter)], weights,
             bytes = static_cast<size_t>(shape_.bytes_of(size))](device::ThreadPool&) {
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
    collectives::Communicator& group = *grid_->group(which);
    BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, group.AllGatherHost(mine));
    for (size_t p = 0; p < mine.size(); ++p) {
      const bool is_cut = ShardOf(job_.model, static_cast<int>(p)).axis.has_value();
      if (which == GridGroup::kTensor && is_cut) continue;
      for (int rank = 0; rank < group.size(); ++rank) {
        EXPECT_EQ(all[static_cast<size_t>(rank) * mine.size() + p], mine[p])
            << "parameter " << p << " on ranks " << rank << " and " << group.rank() << " of the "
            << parallel::Name(which) << " group";
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<int> ParametersOf(int unit) const {
    const auto layers = static_cast<int>(job_.model.layers);
    if (unit == 0) return {kTokens, kPositions};
    if (unit == layers + 1) {
      return {HeadParameter(job_.model, kFinalNormWeight),
              HeadParameter(job_.model, kFinalNormBias)};
    }
    std::vector<int> parameters;
    for (int i = 0; i < kBlockParameters; ++i) {
      parameters.push_back(BlockParameter(unit - 1, static_cast<Block>(i)));
    }
    return parameters;
  }

  const Job& job_;
  Rank& self_;
  std::unique_ptr<parallel::Grid> grid_;
  const PassShape shape_;
  zero::ModelSpec spec_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<uint8_t> texts_;
  std::vector<float> losses_;
  float one_ = 1.0f, seed_ = 0.0f;
};

constexpr GridCase kGrids[] = {
    {.tensor = 4, .data = 2},
    {.tensor = 4, .data = 2, .sequence_parallel = true},
    {.tensor = 2, .context = 2, .data = 2, .sequence_parallel = true},
    {.tensor = 8, .sequence_parallel = true, .tensor_overlap = 2},
    {.tensor = 2, .context = 2, .data = 2, .tensor_overlap = 3, .ring = true},
};

TEST(GridParametersTest, ReplicasHaveTheSameBitsAfterEveryStep) {
  int stage = 0;
  for (const std::string precision : {"fp32", "fp16", "bf16"}) {
    for (const GridCase& grid : kGrids) {
      const int ranks = grid.tensor * grid.context * grid.data;
      const Job job = JobOf(grid, 8, ++stage % zero::kStages, precision, kAdamW);
      SCOPED_TRACE(absl::StrCat(precision, ", tensor ", grid.tensor, ", context ", grid.context,
                                ", stage ", job.config.zero.stage));
      collectives::OnThreads({.size = ranks}, [&](Rank& self) {
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
        }
        EXPECT_TRUE(first != last);
        self.AwaitOthers();
      });
    }
  }
}

// With 32 seeds in all, by turns over stages and grids; the race checker sees each of them.
TEST(GridParametersTest, DelaysChangeNoBitAndNothingIsUnordered) {
  constexpr uint64_t kSeeds = 8;
  for (const GridCase& grid : kGrids) {
    const int ranks = grid.tensor * grid.context * grid.data;
    std::vector<Digests> wanted(static_cast<size_t>(ranks));
    for (uint64_t seed = 0; seed <= kSeeds; ++seed) {
      const Job job = JobOf(grid, 8, static_cast<int>(seed % zero::kStages), "bf16", kAdamW);
      SCOPED_TRACE(absl::StrCat("tensor ", grid.tensor, ", context ", grid.context, ", seed ", seed,
                                ", stage ", job.config.zero.stage));
      device::RaceChecker checker;
      collectives::RanksOptions options = {.size = ranks, .race_checker = &checker};
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
