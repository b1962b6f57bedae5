#include "brigade/train/model_passes.h"

#include <cstddef>

#include "brigade/device/status_macros.h"
#include "brigade/optim/step_controller.h"
#include "brigade/train/times/pass_times.h"

namespace brigade::train {

using models::BackwardHalf;
using parallel::ItemKind;
using parallel::StagePass;

models::Batch ModelPasses::BatchOf(ItemKind kind, const StagePass& pass) const {
  const uint8_t* const inputs = batch().samples_of(pass.micro_batch);
  const int64_t before = int64_t{pass.micro_batch} * options_.data_ranks + options_.at.data;
  models::Batch micro_batch = {
      .inputs = inputs,
      .targets = inputs + options_.targets_begin,
      .samples = batch().filled[static_cast<size_t>(pass.micro_batch)],
      .positions = options_.positions,
      // Updates that were tried before, skipped ones too, which a checkpoint has.
      .step = trains() ? &zero().controller().state()->iteration : nullptr,
      .first_sample = before * options_.samples};
  if (options_.is_whole) return micro_batch;
  micro_batch.chunk = {.units = part_.chunks()[static_cast<size_t>(pass.chunk)],
                       .slot = pass.activations,
                       .deferred = pass.deferred,
                       .half = kind == ItemKind::kBackwardInput    ? BackwardHalf::kInputs
                               : kind == ItemKind::kBackwardWeight ? BackwardHalf::kWeights
                                                                   : BackwardHalf::kBoth,
                       .input = pass.input,
                       .output = pass.output,
                       .output_gradient = pass.output_gradient,
                       .input_gradient = pass.input_gradient};
  return micro_batch;
}

models::SourceNumbers ModelPasses::Numbers() const {
  if (options_.is_whole) return {};
  return {part_.unit_numbers(), part_.parameter_numbers()};
}

models::PassMark ModelPasses::MarkIn(ItemKind kind, device::Stream& compute) const {
  return [kind, &compute](profile::Pass pass, int unit) {
    return MarkPart(pass == profile::Pass::kForward     ? PassPart::kForward
                    : pass == profile::Pass::kRecompute ? PassPart::kRecompute
                    : kind == ItemKind::kBackwardInput  ? PassPart::kBackwardInput
                    : kind == ItemKind::kBackwardWeight ? PassPart::kBackwardWeight
                                                        : PassPart::kBackward,
                    unit, compute);
  };
}

absl::Status ModelPasses::PassOver(ItemKind kind, int chunk) {
  const int first = part_.first_units()[static_cast<size_t>(chunk)];
  const int units = part_.chunks()[static_cast<size_t>(chunk)].size();
  const bool is_forward = kind == ItemKind::kForward;
  for (int i = 0; i < units; ++i) {
    const int unit = is_forward ? first + i : first + units - 1 - i;
    if (kind != ItemKind::kBackwardWeight) {
      zero::UnitScope scope(zero(), unit,
                            is_forward ? zero::Pass::kForward : zero::Pass::kBackward);
      BRIGADE_RETURN_IF_ERROR(scope.Release());
    }
    if (!is_forward && kind != ItemKind::kBackwardInput) {
      BRIGADE_RETURN_IF_ERROR(zero().GradientsReady(unit));
    }
  }
  return absl::OkStatus();
}

absl::Status ModelPasses::Compute(ItemKind kind, const StagePass& pass, device::Stream& compute) {
  const models::Batch micro_batch = BatchOf(kind, pass);
  const bool is_forward = kind == ItemKind::kForward;
  float* const losses = batch().losses_of(pass.micro_batch);
  if (is_forward && micro_batch.samples < options_.samples) {
    BRIGADE_RETURN_IF_ERROR(
        compute.FillBytes(losses, 0, batch().shape().losses * static_cast<int64_t>(sizeof(float))));
  }
  // Behind the decision on the step before, which writes the scale, and the number that the model's
  // dropout goes by.
  if (is_forward && trains()) BRIGADE_RETURN_IF_ERROR(Seed());
  if (micro_batch.samples == 0) {
    BRIGADE_RETURN_IF_ERROR(PassOver(kind, pass.chunk));
  } else if (is_forward) {
    BRIGADE_RETURN_IF_ERROR(models::Forward(model_, micro_batch, losses, zero(), compute,
                                            MarkIn(kind, compute), Numbers()));
  } else {
    BRIGADE_RETURN_IF_ERROR(models::Backward(model_, micro_batch, batch().seed(), zero(), compute,
                                             MarkIn(kind, compute), Numbers()));
  }
  return MarkEnd(compute);
}

}  // namespace brigade::train
