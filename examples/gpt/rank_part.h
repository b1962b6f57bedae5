#ifndef BRIGADE_EXAMPLES_GPT_RANK_PART_H_
#define BRIGADE_EXAMPLES_GPT_RANK_PART_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/pass_collectives.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/examples/gpt/stage_passes.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/buffers.h"
#include "brigade/train/task.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::gpt {

// Of a micro-batch: the residual stream in the rows that a rank has.
parallel::BoundaryShape BoundaryOf(const PassShape& shape);

PassSlots SlotsOf(const parallel::StageBuffers& buffers);

// Where the inputs of stages go to a file: its options; else null.
const device::FileOptions* StashFileOf(const train::TrainConfig& config);

// How a part lies in a checkpoint of the whole model.
checkpoint::ModelPart CheckpointPartOf(const PassShape& shape);

// A rank's part of a GPT, with the texts that it sees.
class RankPart final : public train::RankPart {
 public:
  // All must outlive it. `compute` and `recorder` may be null where Plan and Allocate are not
  // called.
  struct Parts {
    const train::Job& job;
    const ModelOptions& model;
    const Corpus& corpus;
    parallel::Grid& grid;
    device::Context& context;
    device::Stream* compute = nullptr;
    train::Recorder* recorder = nullptr;
  };
  explicit RankPart(const Parts& parts);

  parallel::BoundaryShape boundary() const override { return BoundaryOf(shape_); }
  train::BatchShape batch_shape() const override;

  // By the costs of passes, which where the job says so are measured.
  absl::Status Plan(int stage, const parallel::StageBuffers& buffers) override;
  // The same with a plan that is there already; and, for the summary, one that makes nothing again.
  void Take(PartPlan plan, std::optional<PartPlan> without = std::nullopt);
  const PartPlan& plan() const { return *plan_; }

  absl::Span<const parallel::StageRange> chunks() const override { return plan_->part.chunks(); }
  zero::ModelSpec spec() const override;
  std::vector<int> first_units() const override { return plan_->part.first_units(); }
  std::vector<int> backward_units() const override { return plan_->BackwardUnits(0); }
  bool is_tied_outside() const override {
    return plan_->part.has_embedding() != plan_->part.has_head();
  }
  checkpoint::ModelPart checkpoint_part() const override { return CheckpointPartOf(shape_); }
  bool counts_losses() const override { return plan_->part.has_head() && shape_.tensor_rank == 0; }

  absl::StatusOr<std::vector<zero::MemoryTerm>> Memory() const override;
  std::vector<parallel::PassCollective> CollectivesOfPasses() const override {
    return gpt::CollectivesOfPasses(shape_, *plan_);
  }
  train::ActivationSummary activations() const override;
  recompute::StashMovement stashed_in_pass() const override;
  recompute::StashMovement stashed() const override { return transformer_->stashed(); }
  int64_t stash_file_bytes() const override;

  absl::Status Allocate(zero::ZeroOptimizer& zero) override;
  absl::Status Initialize(int parameter, absl::Span<float> values) const override;

  parallel::StageModule& Train(train::StepBatch& batch) override;
  parallel::StageModule& Evaluate(train::StepBatch& batch) override;

  std::vector<profile::UnitSize> UnitsOfStep() const override;
  profile::Training TrainingOfStep() const override;

  absl::Status WriteStep(int64_t step, train::StepBatch& batch) override;
  absl::Status WriteHeldOut(int64_t first, int64_t micro_batch, train::StepBatch& batch) override;

 private:
  // By which stages are cut and recomputation is planned: the same on all ranks.
  absl::StatusOr<PassCosts> Costs();
  int64_t micro_batches() const { return of_.job.config.zero.micro_batches; }

  const Parts of_;
  const PassShape shape_;
  const PassGroups groups_;
  std::optional<PartPlan> plan_, without_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<StagePasses> passes_;
  // Where a text is before it is cut.
  std::vector<uint8_t> text_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_RANK_PART_H_
