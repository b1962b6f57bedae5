#include "brigade/train/model_task.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "brigade/data/sampler.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/model_cut.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/recompute/policy.h"
#include "brigade/replicas/options.h"
#include "brigade/train/model_part.h"
#include "brigade/train/stage_parts.h"
#include "brigade/train/stage_spec.h"

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

// What the config asks of a model that this one does not do.
class Unsupported {
 public:
  void Add(bool is_asked, absl::string_view what) {
    if (is_asked) absl::StrAppend(&text_, text_.empty() ? "" : "; ", what);
  }
  void Add(const absl::Status& status) { Add(!status.ok(), status.message()); }
  absl::Status status() const {
    return text_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text_);
  }

 private:
  std::string text_;
};

// Of any model.
void Refuse(const TrainConfig& config, bool drop_last, Unsupported& unsupported) {
  unsupported.Add(config.sequence_parallel,
                  "brigade.sequence_parallel: tensor ranks of a Model have all rows");
  unsupported.Add(config.dropout > 0, "brigade.dropout: the model's own options say what it drops");
  unsupported.Add(config.recompute_times == RecomputeTimes::kMeasured,
                  "brigade.recompute_times \"measured\": no passes of a Model are measured before "
                  "the first step");
  unsupported.Add(
      config.replicas > 0 && !drop_last,
      "replicas: a short last step would be of one replica alone; TrainingData::drop_last or "
      "dataloader_drop_last");
}

// Of data whose samples ranks are to share.
absl::Status CheckPositions(const data::Samples& samples, const parallel::ContextRanks& ranks) {
  const data::PositionRows rows = samples.position_rows();
  const int64_t positions = samples.positions();
  if (rows.input < 1 || rows.target < 1) {
    return absl::InvalidArgumentError(
        "context parallelism: the data do not say what of a sample goes by positions, by "
        "data::Samples::position_rows");
  }
  for (const auto& [count, bytes] :
       {std::pair{rows.input, samples.input_bytes()}, {rows.target, samples.target_bytes()}}) {
    if (bytes % (count * positions) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("context parallelism: ", bytes, " bytes are no ",
                                                   count, " rows of ", positions, " positions"));
  }
  const absl::Status status = ranks.Check(positions);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("context parallelism: ", status.message()));
}

// Of this one, which may have no units yet.
void Refuse(const TrainConfig& config, const parallel::TensorShards& wanted,
            const models::Model& model, const models::Batch& batch, Unsupported& unsupported) {
  using By = parallel::PartitionChoice::By;
  unsupported.Add(config.grid.context > 1 && !model.cuts_positions(),
                  "context parallelism: the model takes whole samples; one that takes a part of "
                  "their positions says so by Model::cuts_positions");
  // Asked where it is needed: a model's formula need not hold for all that it can be trained with.
  const bool is_flops = config.partition.by == By::kFlops && config.grid.pipeline > 1;
  const bool has_flops =
      (config.profiler.enabled || is_flops) && model.FlopsOf(0, batch).has_value();
  unsupported.Add(config.profiler.enabled && !has_flops,
                  "flops_profiler: the model does not tell its operations, by Model::FlopsOf");
  unsupported.Add(config.recompute.kind != recompute::Policy::Kind::kNone && !model.recomputes(),
                  absl::StrCat("brigade.recompute (or activation_checkpointing) \"",
                               recompute::ToString(config.recompute),
                               "\": the model makes nothing again; one that does says so by "
                               "Model::recomputes"));
  if (model.cut() != nullptr) {
    unsupported.Add(models::CheckCut(model.spec(), *model.cut(), wanted));
  } else {
    unsupported.Add(wanted.count > 1,
                    absl::StrCat("tensor parallelism: the model does not say how it is cut into ",
                                 wanted.count, " shards, by Model::cut"));
  }
  if (config.grid.pipeline == 1) return;
  if (!model.BoundaryOf(batch).has_value()) {
    return unsupported.Add(
        true,
        "a pipeline: the model does not say what crosses from one unit to the next, "
        "by Model::BoundaryOf");
  }
  const parallel::ScheduleChoice& schedule = config.schedule;
  unsupported.Add(parallel::SplitsBackward(schedule.kind) && !model.splits_backward(),
                  absl::StrCat("brigade.schedule \"", parallel::ToString(schedule),
                               "\": the model's backward pass has no halves, by "
                               "Model::splits_backward; gpipe, 1f1b and interleaved:V need none"));
  unsupported.Add(
      config.partition.by == By::kTime,
      "brigade.partition \"time\": no passes of a Model are measured before it is cut; it "
      "may be parameters, flops or boundaries");
  unsupported.Add(is_flops && !has_flops,
                  "brigade.partition \"flops\": the model does not tell its operations, by "
                  "Model::FlopsOf");
  unsupported.Add(CheckParts(static_cast<int>(model.spec().size()), "its units", config));
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
                              held_out->positions() != training.positions() ||
                              held_out->position_rows() != training.position_rows())) {
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

ModelPlace ModelTask::PlaceOf(const Job& job, const parallel::Coordinates& at,
                              collectives::Communicator* ranks,
                              const parallel::ContextRanks& context_ranks,
                              device::Context& context) const {
  const TrainConfig& config = job.config;
  return {.config = config,
          .context = context,
          .samples = config.batch.train_micro_batch_size_per_gpu,
          .positions = data_.training->positions() / context_ranks.size(),
          .input_bytes = data_.training->input_bytes() / context_ranks.size(),
          .context_ranks = context_ranks,
          .tensor = {.shards = {config.tensor_shards, config.grid.tensor, at.tensor},
                     .ranks = config.grid.tensor > 1 ? ranks : nullptr,
                     .wire = config.sum_wire,
                     .pieces = config.tensor_pieces,
                     .overlap = config.tensor_overlap}};
}

absl::StatusOr<std::unique_ptr<RankPart>> ModelTask::CreatePart(const RankPlace& place) const {
  const TrainConfig& config = place.job.config;
  Unsupported unsupported;
  Refuse(config, DataOf(config).drop_last, unsupported);
  const bool is_cut = config.grid.pipeline > 1;
  const parallel::ContextRanks context_ranks = {&place.grid.context(), config.context_exchange};
  const absl::Status cut =
      context_ranks.share() ? CheckPositions(*data_.training, context_ranks) : absl::OkStatus();
  unsupported.Add(cut);
  // The whole model is not made in vain, nor one for a part of samples that there is not.
  if (!is_cut || !cut.ok()) BRIGADE_RETURN_IF_ERROR(unsupported.status());
  BRIGADE_ASSIGN_OR_RETURN(const int64_t steps,
                           DataOf(config).Steps(config.batch.train_batch_size));
  if (data_.epochs > 0 && place.job.steps > steps) {
    return absl::InvalidArgumentError(absl::StrCat(place.job.steps, " steps, but ", data_.epochs,
                                                   " epochs of the data have ", steps));
  }
  const auto place_of = [this, &job = place.job, &grid = place.grid, &context = place.context,
                         context_ranks] {
    return PlaceOf(job, grid.coordinates(), &grid.tensor(), context_ranks, context);
  };
  ModelPlace model_place = place_of();
  if (is_cut) model_place.stage = models::StageUnits();
  auto made = model_(model_place);
  if (!made.ok()) {
    if (unsupported.status().ok()) return made.status();
    unsupported.Add(made.status());
    return unsupported.status();
  }
  if (*made == nullptr) return absl::InvalidArgumentError("the factory has made no model");
  if (const absl::Status status = CheckSpec((*made)->spec()); !status.ok()) {
    unsupported.Add(status);
    return unsupported.status();
  }
  Refuse(config, model_place.tensor.shards, **made,
         {.samples = model_place.samples, .positions = model_place.positions}, unsupported);
  BRIGADE_RETURN_IF_ERROR(unsupported.status());
  return std::make_unique<ModelPart>(place, data_, *std::move(made), context_ranks,
                                     [this, place_of](const models::StageUnits& stage) {
                                       ModelPlace of_stage = place_of();
                                       of_stage.stage = stage;
                                       return model_(of_stage);
                                     });
}

absl::StatusOr<zero::ModelSpec> ModelTask::Spec(const Job& job, const parallel::Coordinates& at,
                                                device::Context& context) const {
  // Of one that is made for this and goes again.
  ModelPlace place = PlaceOf(job, at, /*ranks=*/nullptr, /*context_ranks=*/{}, context);
  place.positions /= job.config.grid.context;
  place.input_bytes /= job.config.grid.context;
  place.stage = models::StageUnits();
  BRIGADE_ASSIGN_OR_RETURN(const auto model, model_(place));
  if (model == nullptr) return absl::InvalidArgumentError("the factory has made no model");
  return model->spec();
}

TrainingData ModelTask::DataOf(const TrainConfig& config) const {
  TrainingData data = data_;
  data.drop_last = data.drop_last || config.drop_last;
  return data;
}

std::string ModelTask::Order(const TrainConfig& config) const {
  return absl::StrCat(data_.shuffle ? "shuffled" : "in order",
                      DataOf(config).drop_last ? ", whole batches" : "");
}

collectives::JobValues ModelTask::Values(const Job& job) const {
  collectives::JobValues values = {
      {"data", absl::StrCat(training_, ", ", data_.epochs, " epochs, ", Order(job.config))},
      {"held-out data", held_out_.empty() ? "none" : held_out_}};
  if (job.config.grid.context > 1) {
    values.emplace_back("context_exchange", ToString(job.config.context_exchange));
  }
  return values;
}

checkpoint::Fields ModelTask::Fields(const Job& job) const {
  checkpoint::Fields fields = {
      {"seed", absl::StrCat(job.seed)},
      {"train_batch_size", absl::StrCat(job.config.batch.train_batch_size)},
      {"data", training_},
      {"data.order", Order(job.config)}};
  // Without them, what there was before there were any.
  if (job.config.tensor_shards > 1) {
    fields["tensor_shards"] = absl::StrCat(job.config.tensor_shards);
  }
  if (job.config.tensor_pieces > 1) {
    fields["tensor_pieces"] = absl::StrCat(job.config.tensor_pieces);
  }
  if (job.config.replicas > 0) fields["replicas"] = replicas::Describe(job.config.outer);
  return fields;
}

}  // namespace brigade::train
