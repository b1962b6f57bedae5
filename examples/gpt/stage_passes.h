#ifndef BRIGADE_EXAMPLES_GPT_STAGE_PASSES_H_
#define BRIGADE_EXAMPLES_GPT_STAGE_PASSES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/nn/dropout.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/stage_module.h"
#include "brigade/train/step_batch.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::gpt {

// A rank's passes over the micro-batches of a batch, as the executor of a pipeline calls them
// (parallel/pipeline/executor.h): a Transformer with the weights and gradients of a ZeroOptimizer,
// whose step is the schedule's one collective.
//
// Errors       Those of the two.
class StagePasses final : public parallel::StageModule {
 public:
  struct Options {
    // Of training passes; first_element is that of the rank's first micro-batch, `step` is set by
    // StagePasses.
    nn::DropoutMask dropout = {};
    // Elements of the residual stream between two micro-batches, over all ranks' positions.
    int64_t elements_of_micro_batch = 0;
    // This rank's losses count: of ranks that share texts' last part one.
    bool counts_losses = true;
  };

  // All must outlive it.
  StagePasses(const Options& options, Transformer& transformer, zero::ZeroOptimizer& zero)
      : options_(options), transformer_(transformer), zero_(zero) {}

  // The batch of the passes that follow, until the next one: of a step, or to evaluate.
  void Train(train::StepBatch& batch) { Begin(batch, true); }
  void Evaluate(train::StepBatch& batch) { Begin(batch, false); }

  absl::Status Forward(const parallel::StagePass& pass, device::Stream& compute) override;
  absl::Status Backward(const parallel::StagePass& pass, device::Stream& compute) override;
  absl::Status BackwardInput(const parallel::StagePass& pass, device::Stream& compute) override;
  absl::Status BackwardWeight(const parallel::StagePass& pass, device::Stream& compute) override;
  // The mean loss, and the optimizer's step.
  absl::Status Collective(int index, device::Stream& compute) override;

 private:
  void Begin(train::StepBatch& batch, bool trains) {
    batch_ = &batch;
    trains_ = trains;
  }
  nn::DropoutMask Dropout(int micro_batch) const;
  // With runs (ZeroOptions::runs), those of a pipeline: this pass begins. Marks it, and changes the
  // run if its chunk has another.
  absl::Status Enter(parallel::ItemKind kind, const parallel::StagePass& pass,
                     device::Stream& compute);
  // The scaled gradient of the loss, which the model's last part begins with, to the batch's seed.
  absl::Status Seed(const parallel::StagePass& pass);

  const Options options_;
  Transformer& transformer_;
  zero::ZeroOptimizer& zero_;
  train::StepBatch* batch_ = nullptr;
  bool trains_ = false;
  // The chunk whose run it is; -1: none.
  int run_ = -1;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_STAGE_PASSES_H_
