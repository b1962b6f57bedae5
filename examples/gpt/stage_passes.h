#ifndef BRIGADE_EXAMPLES_GPT_STAGE_PASSES_H_
#define BRIGADE_EXAMPLES_GPT_STAGE_PASSES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/nn/dropout.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/stage_module.h"
#include "brigade/train/stage_passes.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::gpt {

// A rank's passes over the micro-batches of a batch: those of a Transformer, with the weights and
// gradients of a ZeroOptimizer.
//
// Errors       Those of the two.
class StagePasses final : public train::StagePasses {
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
      : train::StagePasses(options.counts_losses, zero),
        options_(options),
        transformer_(transformer) {}

 protected:
  absl::Status Compute(parallel::ItemKind kind, const parallel::StagePass& pass,
                       device::Stream& compute) override;

 private:
  nn::DropoutMask Dropout(int micro_batch) const;

  const Options options_;
  Transformer& transformer_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_STAGE_PASSES_H_
