#include "brigade/train/stage_passes.h"

#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype.h"
#include "brigade/train/times/pass_times.h"

namespace brigade::train {

using parallel::ItemKind;
using parallel::StagePass;

absl::Status StagePasses::Enter(ItemKind kind, const StagePass& pass, device::Stream& compute) {
  if (!trains_ || zero_.options().runs.empty()) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(MarkPass({kind, pass.chunk, pass.micro_batch}, compute));
  if (run_ == pass.chunk) return absl::OkStatus();
  if (run_ >= 0) BRIGADE_RETURN_IF_ERROR(zero_.EndRun());
  run_ = pass.chunk;
  return zero_.BeginRun(run_);
}

absl::Status StagePasses::Seed() {
  return zero_.ScaleLoss(batch_->gradient_weight(), batch_->seed(), 1, precision::DType::kFloat32);
}

absl::Status StagePasses::Pass(ItemKind kind, const StagePass& pass, device::Stream& compute) {
  BRIGADE_RETURN_IF_ERROR(Enter(kind, pass, compute));
  BRIGADE_RETURN_IF_ERROR(Compute(kind, pass, compute));
  const bool is_last = kind == ItemKind::kBackward || kind == ItemKind::kBackwardWeight;
  return is_last ? zero_.FinishBackward(pass.chunk) : absl::OkStatus();
}

absl::Status StagePasses::Forward(const StagePass& pass, device::Stream& compute) {
  return Pass(ItemKind::kForward, pass, compute);
}
absl::Status StagePasses::Backward(const StagePass& pass, device::Stream& compute) {
  return Pass(ItemKind::kBackward, pass, compute);
}
absl::Status StagePasses::BackwardInput(const StagePass& pass, device::Stream& compute) {
  return Pass(ItemKind::kBackwardInput, pass, compute);
}
absl::Status StagePasses::BackwardWeight(const StagePass& pass, device::Stream& compute) {
  return Pass(ItemKind::kBackwardWeight, pass, compute);
}

absl::Status StagePasses::Collective(int /*index*/, device::Stream& compute) {
  if (run_ >= 0) {
    BRIGADE_RETURN_IF_ERROR(MarkPassEnd(compute));
    BRIGADE_RETURN_IF_ERROR(zero_.EndRun());
    run_ = -1;
  }
  if (counts_losses_) BRIGADE_RETURN_IF_ERROR(batch_->MeanOfLosses(compute));
  BRIGADE_RETURN_IF_ERROR(compute.Record(batch_->computed()));
  return zero_.Step();
}

}  // namespace brigade::train
