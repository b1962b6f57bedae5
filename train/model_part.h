#ifndef BRIGADE_TRAIN_MODEL_PART_H_
#define BRIGADE_TRAIN_MODEL_PART_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/data/loader.h"
#include "brigade/models/model.h"
#include "brigade/train/model_task.h"
#include "brigade/train/task.h"

namespace brigade::train {

// A whole models::Model as a rank's part, and its passes.
//
// Short steps  Micro-batches that lack samples, or have none, are passes all the same, of as many
//              samples as there are: all ranks gather the same weights in the same order.
class ModelPart final : public RankPart, public parallel::StageModule {
 public:
  // `data` has samples. All must outlive the part.
  ModelPart(const RankPlace& place, const TrainingData& data, std::unique_ptr<models::Model> model);

  parallel::BoundaryShape boundary() const override { return {}; }
  BatchShape batch_shape() const override { return shape_; }
  absl::Status Plan(int stage, const parallel::StageBuffers& buffers) override;
  absl::Span<const parallel::StageRange> chunks() const override { return {&stages_, 1}; }
  zero::ModelSpec spec() const override { return model_->spec(); }
  std::vector<int> first_units() const override { return {0}; }
  std::vector<int> backward_units() const override { return {}; }
  models::Model* model() override { return model_.get(); }
  checkpoint::ModelPart checkpoint_part() const override { return {}; }
  bool counts_losses() const override { return true; }

  absl::StatusOr<std::vector<zero::MemoryTerm>> Memory() const override;
  absl::StatusOr<collectives::Workspace> WorkspaceOf(
      const collectives::Communicator& /*group*/) const override {
    return collectives::Workspace();
  }
  absl::StatusOr<int64_t> SentInPasses(const collectives::Communicator& /*group*/) const override {
    return 0;
  }
  ActivationSummary activations() const override;

  absl::Status Allocate(zero::ZeroOptimizer& zero) override;
  absl::Status Initialize(int parameter, absl::Span<float> values) const override;

  parallel::StageModule& Train(StepBatch& batch) override { return With(batch, true); }
  parallel::StageModule& Evaluate(StepBatch& batch) override { return With(batch, false); }

  std::vector<profile::UnitSize> UnitsOfStep() const override;
  profile::Training TrainingOfStep() const override;

  absl::Status WriteStep(int64_t step, StepBatch& batch) override;
  absl::Status WriteHeldOut(int64_t first, int64_t micro_batch, StepBatch& batch) override;

  absl::Status Forward(const parallel::StagePass& pass, device::Stream& compute) override;
  absl::Status Backward(const parallel::StagePass& pass, device::Stream& compute) override;
  absl::Status BackwardInput(const parallel::StagePass& pass, device::Stream& compute) override;
  absl::Status BackwardWeight(const parallel::StagePass& pass, device::Stream& compute) override;
  // The mean loss, and the optimizer's step.
  absl::Status Collective(int index, device::Stream& compute) override;

 private:
  ModelPart& With(StepBatch& batch, bool trains) {
    batch_ = &batch;
    trains_ = trains;
    return *this;
  }
  // Inputs of a micro-batch come first, targets behind them.
  int64_t targets_begin() const;
  models::Batch BatchOf(int micro_batch) const;
  // Of a whole micro-batch.
  models::UnitFlops FlopsOf(int unit) const;
  // Into `compute`, for the times of steps and for a profile.
  models::PassMark MarkIn(device::Stream& compute) const;
  // All units in the order of a pass, and no work: a pass over no samples.
  absl::Status PassOver(zero::Pass pass);
  // The rank's data from a step on.
  absl::Status Open(int64_t step);

  const RankPlace place_;
  const TrainingData& data_;
  const std::unique_ptr<models::Model> model_;
  const parallel::StageRange stages_;
  BatchShape shape_;
  zero::ZeroOptimizer* zero_ = nullptr;
  StepBatch* batch_ = nullptr;
  bool trains_ = false;
  std::unique_ptr<data::Loader> loader_;
  int64_t next_step_ = -1;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_MODEL_PART_H_
