#include "brigade/examples/gpt/stage_passes.h"

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/text_batch.h"
#include "brigade/optim/step_controller.h"

namespace brigade::gpt {

using parallel::ItemKind;
using parallel::StagePass;

nn::DropoutMask StagePasses::Dropout(int micro_batch) const {
  if (!trains()) return {};
  nn::DropoutMask mask = options_.dropout;
  // The step's number is the count of updates that were tried before, skipped ones too, which a
  // checkpoint has.
  mask.step = &zero().controller().state()->iteration;
  mask.first_element += micro_batch * options_.elements_of_micro_batch;
  return mask;
}

absl::Status StagePasses::Compute(ItemKind kind, const StagePass& pass, device::Stream& compute) {
  const nn::Texts texts = TextsOf(transformer_.shape(), batch(), pass.micro_batch);
  const nn::DropoutMask dropout = Dropout(pass.micro_batch);
  switch (kind) {
    case ItemKind::kForward:
      return transformer_.Forward(pass, texts, batch().losses_of(pass.micro_batch), dropout, zero(),
                                  compute);
    case ItemKind::kBackwardWeight:
      return transformer_.BackwardWeight(pass, texts, zero(), compute);
    default:
      break;
  }
  if (pass.output_gradient == nullptr) BRIGADE_RETURN_IF_ERROR(Seed());
  return kind == ItemKind::kBackward
             ? transformer_.Backward(pass, texts, batch().seed(), dropout, zero(), compute)
             : transformer_.BackwardInput(pass, texts, batch().seed(), dropout, zero(), compute);
}

}  // namespace brigade::gpt
