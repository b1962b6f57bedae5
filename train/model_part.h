#ifndef BRIGADE_TRAIN_MODEL_PART_H_
#define BRIGADE_TRAIN_MODEL_PART_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/data/loader.h"
#include "brigade/models/model.h"
#include "brigade/parallel/context/context_ranks.h"
#include "brigade/train/model_passes.h"
#include "brigade/train/model_task.h"
#include "brigade/train/stage_spec.h"
#include "brigade/train/task.h"

namespace brigade::train {

// A models::Model as a rank's part, whole or a stage of a pipeline.
class ModelPart final : public RankPart {
 public:
  // Makes the model of a stage, once Plan knows which that is; not called without a pipeline.
  using StageFactory = std::function<absl::StatusOr<std::unique_ptr<models::Model>>(
      const models::StageUnits& stage)>;

  // `data` has samples. `model` is the whole one, or with a pipeline one without units, which tells
  // what it would be. Samples that several context ranks share are data that positions cut. All
  // must outlive the part.
  ModelPart(const RankPlace& place, const TrainingData& data, std::unique_ptr<models::Model> model,
            const parallel::ContextRanks& context_ranks, StageFactory stage_factory);

  parallel::BoundaryShape boundary() const override;
  BatchShape batch_shape() const override { return shape_; }
  absl::Status Plan(int stage, const parallel::StageBuffers& buffers) override;
  absl::Span<const parallel::StageRange> chunks() const override { return part_.chunks(); }
  zero::ModelSpec spec() const override { return part_.Of(model_->spec()); }
  std::vector<int> first_units() const override { return part_.first_units(); }
  std::vector<int> backward_units() const override { return {}; }
  bool is_tied_outside() const override;
  models::Model* model() override { return model_.get(); }
  checkpoint::ModelPart checkpoint_part() const override;
  bool counts_losses() const override {
    return part_.has_end() && place_.grid.coordinates().tensor == 0;
  }

  absl::StatusOr<std::vector<zero::MemoryTerm>> Memory() const override;
  std::vector<parallel::PassCollective> CollectivesOfPasses() const override {
    return model_->CollectivesOf(WholeBatch());
  }
  ActivationSummary activations() const override;

  absl::Status Allocate(zero::ZeroOptimizer& zero) override;
  absl::Status Initialize(int parameter, absl::Span<float> values) const override;

  parallel::StageModule& Train(StepBatch& batch) override;
  parallel::StageModule& Evaluate(StepBatch& batch) override;

  std::vector<profile::UnitSize> UnitsOfStep() const override;
  profile::Training TrainingOfStep() const override;

  absl::Status WriteStep(int64_t step, StepBatch& batch) override;
  absl::Status WriteHeldOut(int64_t first, int64_t micro_batch, StepBatch& batch) override;

 private:
  bool has_stages() const { return place_.grid.shape().pipeline > 1; }
  // Whose matrices are cut, on one rank or on several.
  bool is_sharded() const { return model_->cut() != nullptr && model_->cut()->is_sharded(); }
  absl::Status CheckTiedParts() const;
  // Of this rank's positions.
  models::Batch WholeBatch() const;
  int64_t positions() const { return data_.training->positions() / context_ranks_.size(); }
  // Of what this rank has of a sample.
  int64_t input_bytes() const { return data_.training->input_bytes() / context_ranks_.size(); }
  int64_t target_bytes() const { return data_.training->target_bytes() / context_ranks_.size(); }
  // Copies what this rank has of a sample to its place in a micro-batch.
  void CopyPart(const uint8_t* input, const uint8_t* target, int64_t sample,
                uint8_t* micro_batch) const;
  // Inputs of a micro-batch come first, targets behind them.
  int64_t targets_begin() const;
  // What each unit weighs, where parts are to weigh the same.
  std::vector<double> UnitWeights() const;
  // Of a whole micro-batch.
  models::UnitFlops FlopsOf(int unit) const;
  // The rank's data from a step on.
  absl::Status Open(int64_t step);

  const RankPlace place_;
  const TrainingData& data_;
  const parallel::ContextRanks context_ranks_;
  const StageFactory stage_factory_;
  std::unique_ptr<models::Model> model_;
  StageSpec part_;
  BatchShape shape_;
  std::unique_ptr<ModelPasses> passes_;
  std::unique_ptr<data::Loader> loader_;
  int64_t next_step_ = -1;
  // A held-out sample before it is cut.
  std::vector<uint8_t> whole_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_MODEL_PART_H_
