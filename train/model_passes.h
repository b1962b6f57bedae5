#ifndef BRIGADE_TRAIN_MODEL_PASSES_H_
#define BRIGADE_TRAIN_MODEL_PASSES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/models/model.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/stage_module.h"
#include "brigade/train/stage_passes.h"
#include "brigade/train/stage_spec.h"
#include "brigade/zero/step.h"

namespace brigade::train {

// A rank's passes over the micro-batches of a batch: those of a models::Model, whole or of a
// pipeline's stage.
//
// Short steps  Micro-batches that lack samples, or have none, are passes all the same, of as many
//              samples as there are: all ranks gather the same weights in the same order.
class ModelPasses final : public StagePasses {
 public:
  struct Options {
    // Samples of a micro-batch, their positions, and where in its memory targets begin.
    int64_t samples = 1;
    int64_t positions = 1;
    int64_t targets_begin = 0;
    // Of the whole model, which is not made for a stage.
    bool is_whole = true;
    parallel::Coordinates at = {};
    // Ranks that share out a micro-batch's number.
    int data_ranks = 1;
  };

  // All must outlive it.
  ModelPasses(const Options& options, const StageSpec& part, models::Model& model,
              zero::ZeroOptimizer& zero)
      : StagePasses(part.has_end() && options.at.tensor == 0, zero),
        options_(options),
        part_(part),
        model_(model) {}

 protected:
  absl::Status Compute(parallel::ItemKind kind, const parallel::StagePass& pass,
                       device::Stream& compute) override;

 private:
  models::Batch BatchOf(parallel::ItemKind kind, const parallel::StagePass& pass) const;
  models::SourceNumbers Numbers() const;
  // Into `compute`, for the times of steps and for a profile.
  models::PassMark MarkIn(parallel::ItemKind kind, device::Stream& compute) const;
  // All units of a chunk in the order of a pass, and no work: a pass over no samples.
  absl::Status PassOver(parallel::ItemKind kind, int chunk);

  const Options options_;
  const StageSpec& part_;
  models::Model& model_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_MODEL_PASSES_H_
