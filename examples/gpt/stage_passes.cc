#include "brigade/examples/gpt/stage_passes.h"

#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/text_batch.h"
#include "brigade/optim/step_controller.h"
#include "brigade/train/times/pass_times.h"

namespace brigade::gpt {

using parallel::ItemKind;
using parallel::StagePass;

nn::DropoutMask StagePasses::Dropout(int micro_batch) const {
  if (!trains_) return {};
  nn::DropoutMask mask = options_.dropout;
  // The step's number is the count of updates that were tried before, skipped ones too, which a
  // checkpoint has.
  mask.step = &zero_.controller().state()->iteration;
  mask.first_element += micro_batch * options_.elements_of_micro_batch;
  return mask;
}

absl::Status StagePasses::Enter(parallel::ItemKind kind, const StagePass& pass,
                                device::Stream& compute) {
  if (!trains_ || zero_.options().runs.empty()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(train::MarkPass({kind, pass.chunk, pass.micro_batch}, compute));
  if (run_ == pass.chunk) return absl::OkStatus();
  if (run_ >= 0) BRIGADE_RETURN_IF_ERROR(zero_.EndRun());
  run_ = pass.chunk;
  return zero_.BeginRun(run_);
}

absl::Status StagePasses::Seed(const StagePass& pass) {
  if (pass.output_gradient != nullptr) return absl::OkStatus();
  return zero_.ScaleLoss(batch_->gradient_weight(), batch_->seed(), 1, precision::DType::kFloat32);
}

absl::Status StagePasses::Forward(const StagePass& pass, device::Stream& compute) {
  BRIGADE_RETURN_IF_ERROR(Enter(ItemKind::kForward, pass, compute));
  return transformer_.Forward(pass, TextsOf(transformer_.shape(), *batch_, pass.micro_batch),
                              batch_->losses_of(pass.micro_batch), Dropout(pass.micro_batch), zero_,
                              compute);
}

absl::Status StagePasses::Backward(const StagePass& pass, device::Stream& compute) {
  BRIGADE_RETURN_IF_ERROR(Enter(ItemKind::kBackward, pass, compute));
  BRIGADE_RETURN_IF_ERROR(Seed(pass));
  BRIGADE_RETURN_IF_ERROR(
      transformer_.Backward(pass, TextsOf(transformer_.shape(), *batch_, pass.micro_batch),
                            batch_->seed(), Dropout(pass.micro_batch), zero_, compute));
  return zero_.FinishBackward(pass.chunk);
}

absl::Status StagePasses::BackwardInput(const StagePass& pass, device::Stream& compute) {
  BRIGADE_RETURN_IF_ERROR(Enter(ItemKind::kBackwardInput, pass, compute));
  BRIGADE_RETURN_IF_ERROR(Seed(pass));
  return transformer_.BackwardInput(pass, TextsOf(transformer_.shape(), *batch_, pass.micro_batch),
                                    batch_->seed(), Dropout(pass.micro_batch), zero_, compute);
}

absl::Status StagePasses::BackwardWeight(const StagePass& pass, device::Stream& compute) {
  BRIGADE_RETURN_IF_ERROR(Enter(ItemKind::kBackwardWeight, pass, compute));
  BRIGADE_RETURN_IF_ERROR(transformer_.BackwardWeight(
      pass, TextsOf(transformer_.shape(), *batch_, pass.micro_batch), zero_, compute));
  return zero_.FinishBackward(pass.chunk);
}

absl::Status StagePasses::Collective(int, device::Stream& compute) {
  if (run_ >= 0) {
    BRIGADE_RETURN_IF_ERROR(train::MarkPassEnd(compute));
    BRIGADE_RETURN_IF_ERROR(zero_.EndRun());
    run_ = -1;
  }
  if (options_.counts_losses) BRIGADE_RETURN_IF_ERROR(batch_->MeanOfLosses(compute));
  BRIGADE_RETURN_IF_ERROR(compute.Record(batch_->computed()));
  return zero_.Step();
}

}  // namespace brigade::gpt
