#ifndef BRIGADE_TRAIN_STAGE_PASSES_H_
#define BRIGADE_TRAIN_STAGE_PASSES_H_

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/stage_module.h"
#include "brigade/train/step_batch.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::train {

// A rank's passes over the micro-batches of a batch, as the executor of a pipeline calls them
// (parallel/pipeline/executor.h), with the weights and gradients of a ZeroOptimizer: its runs, the
// ends of its backward passes, and its step, which is the schedule's one collective. The model's
// own passes are to be added.
//
// Errors       Those of the two.
class StagePasses : public parallel::StageModule {
 public:
  // The batch of the passes that follow, until the next one: of a step, or to evaluate.
  void Train(StepBatch& batch) { Begin(batch, true); }
  void Evaluate(StepBatch& batch) { Begin(batch, false); }

  absl::Status Forward(const parallel::StagePass& pass, device::Stream& compute) final;
  absl::Status Backward(const parallel::StagePass& pass, device::Stream& compute) final;
  absl::Status BackwardInput(const parallel::StagePass& pass, device::Stream& compute) final;
  absl::Status BackwardWeight(const parallel::StagePass& pass, device::Stream& compute) final;
  // The mean loss, and the optimizer's step.
  absl::Status Collective(int index, device::Stream& compute) final;

 protected:
  // `counts_losses`: this rank's losses count, of ranks that have the same ones. `zero` must
  // outlive it.
  StagePasses(bool counts_losses, zero::ZeroOptimizer& zero)
      : counts_losses_(counts_losses), zero_(zero) {}

  // The model's pass.
  virtual absl::Status Compute(parallel::ItemKind kind, const parallel::StagePass& pass,
                               device::Stream& compute) = 0;

  StepBatch& batch() const { return *batch_; }
  bool trains() const { return trains_; }
  zero::ZeroOptimizer& zero() const { return zero_; }
  // The scaled gradient of the loss, which the model's last part begins with, to the batch's seed.
  absl::Status Seed();

 private:
  void Begin(StepBatch& batch, bool trains) {
    batch_ = &batch;
    trains_ = trains;
  }
  // With runs (ZeroOptions::runs), those of a pipeline: this pass begins. Marks it, and changes the
  // run if its chunk has another.
  absl::Status Enter(parallel::ItemKind kind, const parallel::StagePass& pass,
                     device::Stream& compute);
  absl::Status Pass(parallel::ItemKind kind, const parallel::StagePass& pass,
                    device::Stream& compute);

  const bool counts_losses_;
  zero::ZeroOptimizer& zero_;
  StepBatch* batch_ = nullptr;
  bool trains_ = false;
  // The chunk whose run it is; -1: none.
  int run_ = -1;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_STAGE_PASSES_H_
