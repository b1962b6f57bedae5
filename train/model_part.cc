#include "brigade/train/model_part.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/data/sampler.h"
#include "brigade/device/round_up.h"
#include "brigade/device/status_macros.h"
#include "brigade/optim/step_controller.h"
#include "brigade/train/times/pass_times.h"

namespace brigade::train {
namespace {

using device::Purpose;
using device::Tier;

constexpr int64_t kAlignment = 256;

}  // namespace

ModelPart::ModelPart(const RankPlace& place, const TrainingData& data,
                     std::unique_ptr<models::Model> model)
    : place_(place),
      data_(data),
      model_(std::move(model)),
      stages_{0, static_cast<int>(model_->spec().size())},
      shape_{.samples = place.job.config.batch.train_micro_batch_size_per_gpu,
             .alignment = kAlignment} {
  shape_.bytes = targets_begin() + shape_.samples * data.training->target_bytes();
  shape_.losses = shape_.samples * data.training->positions();
}

int64_t ModelPart::targets_begin() const {
  return device::RoundUp(shape_.samples * data_.training->input_bytes(), kAlignment);
}

absl::Status ModelPart::Plan(int /*stage*/, const parallel::StageBuffers& /*buffers*/) {
  const models::Batch whole = {.samples = shape_.samples, .positions = data_.training->positions()};
  if (const int64_t losses = model_->LossesOf(whole); losses != shape_.losses) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", losses,
                                                   " losses for a micro-batch of ", shape_.samples,
                                                   " samples, whose data say ", shape_.losses));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<zero::MemoryTerm>> ModelPart::Memory() const {
  const models::ModelMemory bytes = model_->bytes();
  return std::vector<zero::MemoryTerm>{
      {Tier::kDevice, Purpose::kActivations, "activations", bytes.activations},
      {Tier::kDevice, Purpose::kScratch, "workspace of layers", bytes.scratch}};
}

ActivationSummary ModelPart::activations() const {
  const int64_t bytes = model_->bytes().activations;
  return {.bytes = bytes, .bytes_without = bytes};
}

models::UnitFlops ModelPart::FlopsOf(int unit) const {
  return model_
      ->FlopsOf(unit, {.samples = shape_.samples, .positions = data_.training->positions()})
      .value_or(models::UnitFlops());
}

std::vector<profile::UnitSize> ModelPart::UnitsOfStep() const {
  std::vector<profile::UnitSize> units;
  for (const zero::UnitSpec& spec : model_->spec()) {
    profile::UnitSize& unit = units.emplace_back(profile::UnitSize{.name = spec.name});
    for (const zero::ParameterSpec& parameter : spec.parameters) unit.parameters += parameter.size;
    const models::UnitFlops once = FlopsOf(static_cast<int>(units.size()) - 1);
    for (int64_t m = 0; m < place_.job.config.batch.gradient_accumulation_steps; ++m) {
      for (size_t pass = 0; pass < once.size(); ++pass) unit.flops[pass] += once[pass];
    }
  }
  return units;
}

profile::Training ModelPart::TrainingOfStep() const {
  const auto positions = static_cast<double>(data_.training->positions());
  const double tokens = static_cast<double>(shape_.samples) * positions;
  profile::Training training = {
      .tokens_of_step = static_cast<double>(place_.job.config.batch.train_batch_size) * positions,
      .pairs_over_causal = 2 * positions / (positions + 1)};
  for (const profile::UnitSize& unit : UnitsOfStep()) training.parameters += unit.parameters;
  for (int unit = 0; unit < stages_.size(); ++unit) {
    const models::UnitFlops flops = FlopsOf(unit);
    for (const profile::Pass pass : {profile::Pass::kForward, profile::Pass::kBackward}) {
      const profile::Flops& of = flops[static_cast<size_t>(pass)];
      training.causal_flops_per_token += (of.products + of.attention) / tokens;
      training.flops_per_token +=
          (of.products + of.attention * training.pairs_over_causal) / tokens;
    }
  }
  return training;
}

models::PassMark ModelPart::MarkIn(device::Stream& compute) const {
  return [&compute](profile::Pass pass, int unit) {
    return MarkPart(pass == profile::Pass::kForward    ? PassPart::kForward
                    : pass == profile::Pass::kBackward ? PassPart::kBackward
                                                       : PassPart::kRecompute,
                    unit, compute);
  };
}

absl::Status ModelPart::Allocate(zero::ZeroOptimizer& zero) {
  zero_ = &zero;
  return absl::OkStatus();
}

absl::Status ModelPart::Initialize(int parameter, absl::Span<float> values) const {
  model_->Initialize(parameter, place_.job.seed, values);
  return absl::OkStatus();
}

absl::Status ModelPart::Open(int64_t step) {
  const data::LoaderOptions options = {
      .batch = place_.job.config.batch.train_batch_size,
      .rank = {.rank = place_.grid.coordinates().data,
               .ranks = place_.grid.shape().data,
               .micro_batch = shape_.samples},
      .seed = place_.job.seed,
      .shuffle = data_.shuffle,
      .drop_last = data_.drop_last,
      .epochs = data_.epochs,
  };
  BRIGADE_ASSIGN_OR_RETURN(const data::Sampler sampler,
                           data::Sampler::Create({.samples = data_.training->size(),
                                                  .batch = options.batch,
                                                  .seed = options.seed,
                                                  .shuffle = options.shuffle,
                                                  .drop_last = options.drop_last}));
  BRIGADE_ASSIGN_OR_RETURN(loader_,
                           data::Loader::Create(data_.training, options, sampler.AtStep(step)));
  next_step_ = step;
  return absl::OkStatus();
}

absl::Status ModelPart::WriteStep(int64_t step, StepBatch& batch) {
  if (step != next_step_) BRIGADE_RETURN_IF_ERROR(Open(step));
  BRIGADE_ASSIGN_OR_RETURN(const data::StepData* const data, loader_->Next());
  if (data == nullptr) {
    return absl::OutOfRangeError(
        absl::StrCat("step ", step + 1, " comes behind the last of ", data_.epochs, " epochs"));
  }
  ++next_step_;
  for (int64_t m = 0; m < batch.micro_batches(); ++m) {
    int64_t& filled = batch.filled[static_cast<size_t>(m)];
    filled = 0;
    if (m >= data->micro_batches) continue;
    const data::StepData::MicroBatch& of = data->of[static_cast<size_t>(m)];
    filled = of.samples;
    uint8_t* const host = batch.host_samples_of(m);
    std::memcpy(host, of.inputs, static_cast<size_t>(filled * data_.training->input_bytes()));
    std::memcpy(host + targets_begin(), of.targets,
                static_cast<size_t>(filled * data_.training->target_bytes()));
  }
  // Of all ranks, with replicas too: a replica's gradient weighs as its losses do, so that the mean
  // over replicas is that of all.
  const auto ranks = static_cast<double>(place_.grid.shape().data);
  const auto counted = static_cast<double>(std::max<int64_t>(data->counted, 1));
  const Job& job = place_.job;
  const double divisor = job.config.zero.average_gradients
                             ? ranks * static_cast<double>(batch.micro_batches())
                             : std::max(job.config.replicas, 1);
  batch.weights = {.gradient = static_cast<float>(divisor / counted),
                   .mean = ranks * static_cast<double>(batch.losses()) / counted};
  return absl::OkStatus();
}

absl::Status ModelPart::WriteHeldOut(int64_t first, int64_t micro_batch, StepBatch& batch) {
  const data::Samples& samples = *data_.held_out;
  int64_t& filled = batch.filled[static_cast<size_t>(micro_batch)];
  filled = std::clamp<int64_t>(samples.size() - first, 0, shape_.samples);
  uint8_t* const host = batch.host_samples_of(micro_batch);
  for (int64_t i = 0; i < filled; ++i) {
    BRIGADE_RETURN_IF_ERROR(samples.Read(first + i, host + i * samples.input_bytes(),
                                         host + targets_begin() + i * samples.target_bytes()));
  }
  return absl::OkStatus();
}

models::Batch ModelPart::BatchOf(int micro_batch) const {
  const uint8_t* const inputs = batch_->samples_of(micro_batch);
  const parallel::Coordinates& at = place_.grid.coordinates();
  const int64_t before = int64_t{micro_batch} * place_.grid.shape().data + at.data;
  return {.inputs = inputs,
          .targets = inputs + targets_begin(),
          .samples = batch_->filled[static_cast<size_t>(micro_batch)],
          .positions = data_.training->positions(),
          // Updates that were tried before, skipped ones too, which a checkpoint has.
          .step = trains_ ? &zero_->controller().state()->iteration : nullptr,
          .first_sample = before * shape_.samples};
}

absl::Status ModelPart::PassOver(zero::Pass pass) {
  const int units = stages_.size();
  for (int i = 0; i < units; ++i) {
    const bool is_backward = pass == zero::Pass::kBackward;
    const int unit = is_backward ? units - 1 - i : i;
    zero::UnitScope scope(*zero_, unit, pass);
    BRIGADE_RETURN_IF_ERROR(scope.Release());
    if (is_backward) BRIGADE_RETURN_IF_ERROR(zero_->GradientsReady(unit));
  }
  return absl::OkStatus();
}

absl::Status ModelPart::Forward(const parallel::StagePass& pass, device::Stream& compute) {
  const models::Batch batch = BatchOf(pass.micro_batch);
  float* const losses = batch_->losses_of(pass.micro_batch);
  if (batch.samples < shape_.samples) {
    BRIGADE_RETURN_IF_ERROR(
        compute.FillBytes(losses, 0, shape_.losses * static_cast<int64_t>(sizeof(float))));
  }
  // Behind the decision on the step before, which writes the scale, and the number that the model's
  // dropout goes by.
  if (trains_) {
    BRIGADE_RETURN_IF_ERROR(
        zero_->ScaleLoss(batch_->gradient_weight(), batch_->seed(), 1, precision::DType::kFloat32));
  }
  if (batch.samples == 0) return PassOver(zero::Pass::kForward);
  BRIGADE_RETURN_IF_ERROR(
      models::Forward(*model_, batch, losses, *zero_, compute, MarkIn(compute)));
  return MarkEnd(compute);
}

absl::Status ModelPart::Backward(const parallel::StagePass& pass, device::Stream& compute) {
  const models::Batch batch = BatchOf(pass.micro_batch);
  BRIGADE_RETURN_IF_ERROR(batch.samples == 0 ? PassOver(zero::Pass::kBackward)
                                             : models::Backward(*model_, batch, batch_->seed(),
                                                                *zero_, compute, MarkIn(compute)));
  BRIGADE_RETURN_IF_ERROR(MarkEnd(compute));
  return zero_->FinishBackward(pass.chunk);
}

// No schedule of one stage splits the backward pass.
absl::Status ModelPart::BackwardInput(const parallel::StagePass&, device::Stream&) {
  return absl::InternalError("a model's backward pass in two parts");
}
absl::Status ModelPart::BackwardWeight(const parallel::StagePass&, device::Stream&) {
  return absl::InternalError("a model's backward pass in two parts");
}

absl::Status ModelPart::Collective(int /*index*/, device::Stream& compute) {
  BRIGADE_RETURN_IF_ERROR(batch_->MeanOfLosses(compute));
  BRIGADE_RETURN_IF_ERROR(compute.Record(batch_->computed()));
  return zero_->Step();
}

}  // namespace brigade::train
