#include "brigade/train/model_task.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/data/sampler.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"
#include "brigade/replicas/options.h"
#include "brigade/train/model_part.h"

namespace brigade::train {
namespace {

int64_t Counted(const data::Samples& samples) {
  int64_t counted = 0;
  for (int64_t i = 0; i < samples.size(); ++i) counted += samples.CountedLosses(i);
  return counted;
}

// Sizes, and a checksum of some samples, the first and the last among them.
absl::StatusOr<std::string> Describe(const data::Samples& samples) {
  constexpr int64_t kRead = 16;
  const int64_t step = std::max<int64_t>(1, (samples.size() - 1) / kRead);
  std::string bytes;
  std::string sample(static_cast<size_t>(samples.input_bytes() + samples.target_bytes()), '\0');
  for (int64_t i = 0; i < samples.size() + step - 1; i += step) {
    // The last one comes last, whatever the steps.
    const int64_t at = std::min(i, samples.size() - 1);
    BRIGADE_RETURN_IF_ERROR(samples.Read(at, sample.data(), sample.data() + samples.input_bytes()));
    bytes += sample;
  }
  return absl::StrFormat("%d samples of %d positions, %d and %d bytes, %d losses, crc32c %08x",
                         samples.size(), samples.positions(), samples.input_bytes(),
                         samples.target_bytes(), Counted(samples), device::Crc32c(bytes));
}

// InvalidArgument with all that the config asks of a model that this one does not do.
absl::Status Check(const Job& job, bool drop_last) {
  const TrainConfig& config = job.config;
  std::string refused;
  const auto refuse = [&](bool is_asked, const char* what) {
    if (is_asked) absl::StrAppend(&refused, refused.empty() ? "" : "; ", what);
  };
  refuse(config.grid.tensor > 1, "tensor parallelism: the model is not cut");
  refuse(config.grid.pipeline > 1, "a pipeline: the model has no stages that pass on activations");
  refuse(config.grid.context > 1, "context parallelism: the model sees whole samples");
  refuse(config.dropout > 0, "brigade.dropout: the model's own options say what it drops");
  refuse(config.replicas > 0 && !drop_last,
         "replicas: a short last step would be of one replica alone; TrainingData::drop_last");
  return refused.empty() ? absl::OkStatus() : absl::InvalidArgumentError(refused);
}

}  // namespace

absl::StatusOr<int64_t> TrainingData::Steps(int64_t batch) const {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (training == nullptr || epochs < 0 ||
      epochs > kMost / std::max<int64_t>(training->size(), 1)) {
    return absl::InvalidArgumentError(absl::StrCat(epochs, " epochs of ",
                                                   training == nullptr ? 0 : training->size(),
                                                   " samples; 0 is without end"));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      const data::Sampler sampler,
      data::Sampler::Create({.samples = training->size(), .batch = batch, .drop_last = drop_last}));
  return epochs * sampler.StepsPerEpoch();
}

absl::StatusOr<std::unique_ptr<ModelTask>> ModelTask::Create(ModelFactory model,
                                                             TrainingData data) {
  if (model == nullptr || data.training == nullptr) {
    return absl::InvalidArgumentError("a training needs a model and data");
  }
  const data::Samples& training = *data.training;
  if (training.size() < 1 || training.positions() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("data of ", training.size(), " samples of ",
                                                   training.positions(), " positions"));
  }
  if (const data::Samples* const held_out = data.held_out.get();
      held_out != nullptr && (held_out->input_bytes() != training.input_bytes() ||
                              held_out->target_bytes() != training.target_bytes() ||
                              held_out->positions() != training.positions())) {
    return absl::InvalidArgumentError(
        "samples to train on and held-out ones have inputs, targets or positions of other sizes");
  }
  std::unique_ptr<ModelTask> task(new ModelTask(std::move(model), std::move(data)));
  BRIGADE_ASSIGN_OR_RETURN(task->training_, Describe(*task->data_.training));
  if (task->data_.held_out != nullptr && task->data_.held_out->size() > 0) {
    BRIGADE_ASSIGN_OR_RETURN(task->held_out_, Describe(*task->data_.held_out));
    task->held_out_losses_ = Counted(*task->data_.held_out);
    if (task->held_out_losses_ == 0) {
      return absl::InvalidArgumentError("held-out samples without a loss that counts");
    }
  }
  return task;
}

int64_t ModelTask::held_out_samples() const {
  return data_.held_out == nullptr ? 0 : data_.held_out->size();
}

ModelPlace ModelTask::PlaceOf(const Job& job, device::Context& context) const {
  return {.config = job.config,
          .context = context,
          .samples = job.config.batch.train_micro_batch_size_per_gpu,
          .positions = data_.training->positions(),
          .input_bytes = data_.training->input_bytes()};
}

absl::StatusOr<std::unique_ptr<RankPart>> ModelTask::CreatePart(const RankPlace& place) const {
  BRIGADE_RETURN_IF_ERROR(Check(place.job, data_.drop_last));
  BRIGADE_ASSIGN_OR_RETURN(const int64_t steps,
                           data_.Steps(place.job.config.batch.train_batch_size));
  if (data_.epochs > 0 && place.job.steps > steps) {
    return absl::InvalidArgumentError(absl::StrCat(place.job.steps, " steps, but ", data_.epochs,
                                                   " epochs of the data have ", steps));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto model, model_(PlaceOf(place.job, place.context)));
  if (model == nullptr) return absl::InvalidArgumentError("the factory has made no model");
  if (place.job.config.profiler.enabled && !model->FlopsOf(0, {.samples = 1}).has_value()) {
    return absl::InvalidArgumentError(
        "flops_profiler: the model does not tell its operations, by Model::FlopsOf");
  }
  return std::make_unique<ModelPart>(place, data_, std::move(model));
}

absl::StatusOr<zero::ModelSpec> ModelTask::Spec(const Job& job, const parallel::Coordinates&,
                                                device::Context& context) const {
  // Of one that is made for this and goes again.
  BRIGADE_ASSIGN_OR_RETURN(const auto model, model_(PlaceOf(job, context)));
  if (model == nullptr) return absl::InvalidArgumentError("the factory has made no model");
  return model->spec();
}

std::string ModelTask::Order() const {
  return absl::StrCat(data_.shuffle ? "shuffled" : "in order",
                      data_.drop_last ? ", whole batches" : "");
}

collectives::JobValues ModelTask::Values(const Job&) const {
  return {{"data", absl::StrCat(training_, ", ", data_.epochs, " epochs, ", Order())},
          {"held-out data", held_out_.empty() ? "none" : held_out_}};
}

checkpoint::Fields ModelTask::Fields(const Job& job) const {
  checkpoint::Fields fields = {
      {"seed", absl::StrCat(job.seed)},
      {"train_batch_size", absl::StrCat(job.config.batch.train_batch_size)},
      {"data", training_},
      {"data.order", Order()}};
  if (job.config.replicas > 0) fields["replicas"] = replicas::Describe(job.config.outer);
  return fields;
}

}  // namespace brigade::train
