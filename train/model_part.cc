#include "brigade/train/model_part.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/data/sampler.h"
#include "brigade/device/round_up.h"
#include "brigade/device/status_macros.h"
#include "brigade/models/model_cut.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/train/stage_parts.h"

namespace brigade::train {
namespace {

using device::Purpose;
using device::Tier;

constexpr int64_t kAlignment = 256;

// Of `rows` rows of all positions of a sample, `bytes` in all, those of the rank, row by row.
void CopyRows(const parallel::ContextRanks& ranks, int64_t positions, int64_t rows, int64_t bytes,
              const uint8_t* from, uint8_t* to) {
  const int64_t of_row = bytes / rows, of_position = of_row / positions;
  for (int64_t row = 0; row < rows; ++row) {
    for (const parallel::PositionRun& run : ranks.RunsOf(positions)) {
      const auto size = static_cast<size_t>(run.count * of_position);
      std::memcpy(to, from + row * of_row + run.global * of_position, size);
      to += size;
    }
  }
}

}  // namespace

ModelPart::ModelPart(const RankPlace& place, const TrainingData& data,
                     std::unique_ptr<models::Model> model,
                     const parallel::ContextRanks& context_ranks, StageFactory stage_factory)
    : place_(place),
      data_(data),
      context_ranks_(context_ranks),
      stage_factory_(std::move(stage_factory)),
      model_(std::move(model)),
      part_(model_->spec()),
      shape_{.samples = place.job.config.batch.train_micro_batch_size_per_gpu,
             .alignment = kAlignment} {
  shape_.bytes = targets_begin() + shape_.samples * target_bytes();
  shape_.losses = shape_.samples * positions();
  whole_.resize(static_cast<size_t>(data.training->input_bytes() + data.training->target_bytes()));
}

int64_t ModelPart::targets_begin() const {
  return device::RoundUp(shape_.samples * input_bytes(), kAlignment);
}

models::Batch ModelPart::WholeBatch() const {
  return {.samples = shape_.samples, .positions = positions()};
}

parallel::BoundaryShape ModelPart::boundary() const {
  if (!has_stages()) return {};
  const models::Boundary boundary = model_->BoundaryOf(WholeBatch()).value_or(models::Boundary());
  return {boundary.elements, boundary.dtype};
}

std::vector<double> ModelPart::UnitWeights() const {
  if (place_.job.config.partition.by != parallel::PartitionChoice::By::kFlops) {
    zero::ModelSpec counted = model_->spec();
    int number = 0;
    for (zero::UnitSpec& unit : counted) {
      for (zero::ParameterSpec& parameter : unit.parameters) {
        parameter.size = model_->CountOf(number++);
      }
    }
    return ParametersOfUnits(counted);
  }
  std::vector<double> weights;
  for (int unit = 0; unit < std::ssize(model_->spec()); ++unit) {
    // Without what is made again.
    const models::UnitFlops flops = FlopsOf(unit);
    double& weight = weights.emplace_back(0);
    for (const profile::Pass pass : {profile::Pass::kForward, profile::Pass::kBackward}) {
      const profile::Flops& of = flops[static_cast<size_t>(pass)];
      weight += of.products + of.attention;
    }
  }
  return weights;
}

absl::Status ModelPart::Plan(int stage, const parallel::StageBuffers& buffers) {
  if (const int64_t losses = model_->LossesOf(WholeBatch()); losses != shape_.losses) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", losses,
                                                   " losses for a micro-batch of ", shape_.samples,
                                                   " samples, whose data say ", shape_.losses));
  }
  if (!has_stages()) return absl::OkStatus();
  const TrainConfig& config = place_.job.config;
  const parallel::PipelineShape pipeline = config.pipeline_shape();
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int> boundaries,
                           PartsOf(UnitWeights(), pipeline, config.partition, /*limit=*/nullptr));
  BRIGADE_RETURN_IF_ERROR(CheckTies(model_->spec(), pipeline, boundaries));
  BRIGADE_RETURN_IF_ERROR(AgreeOnParts(boundaries, place_.grid.world()));
  const zero::ModelSpec whole = model_->spec();
  part_ = StageSpec(whole, ChunksOf(pipeline, boundaries, stage));
  BRIGADE_RETURN_IF_ERROR(CheckTiedParts());
  std::optional<parallel::TensorShards> shards;
  if (model_->cut() != nullptr) shards = model_->cut()->shards;
  // A factory that takes no notice of the place makes a model with all its memory, twice.
  model_.reset();
  BRIGADE_ASSIGN_OR_RETURN(model_,
                           stage_factory_({.chunks = part_.chunks(),
                                           .slots = static_cast<int>(buffers.activations),
                                           .deferred = static_cast<int>(buffers.deferred)}));
  if (model_ == nullptr) return absl::InvalidArgumentError("the factory has made no model");
  BRIGADE_RETURN_IF_ERROR(CheckSame(whole, model_->spec()));
  if (shards.has_value()) {
    if (model_->cut() == nullptr) {
      return absl::InvalidArgumentError(
          "the model that the factory has made for a stage of a pipeline does not say how it is "
          "cut, by Model::cut, as the whole one does");
    }
    BRIGADE_RETURN_IF_ERROR(models::CheckCut(model_->spec(), *model_->cut(), *shards));
  }
  if (model_->slots() >= buffers.activations && model_->deferred() >= buffers.deferred) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the model for stage ", stage, " keeps ", model_->slots(), " passes over a chunk (",
      "Model::slots) and ", model_->deferred(), " halves of backward passes (Model::deferred); ",
      "brigade.schedule \"", parallel::ToString(config.schedule), "\" needs ", buffers.activations,
      " and ", buffers.deferred, ", as ModelPlace::stage has said"));
}

// Of two stages one counts what both have, whose ranks come in pairs.
absl::Status ModelPart::CheckTiedParts() const {
  if (place_.grid.shape().tensor == 1) return absl::OkStatus();
  const models::ModelCut& cut = *model_->cut();
  size_t place = 0;
  for (const zero::UnitSpec& unit : spec()) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      const auto number = static_cast<size_t>(part_.parameters()[place++]);
      const bool is_whole = !cut.parameters[number].axis.has_value();
      if (!parameter.tied_outside || !parameter.trainable || !is_whole) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("a pipeline of ", place_.grid.shape().tensor,
                       " tensor ranks: its first and its last stage share \"", parameter.name,
                       "\", which every tensor rank has whole, as ", cut.shards.count,
                       " shards do not divide it; with a vocabulary that they divide each has a "
                       "part, and with a head of its own nothing is shared"));
    }
  }
  return absl::OkStatus();
}

bool ModelPart::is_tied_outside() const {
  for (const zero::UnitSpec& unit : spec()) {
    for (const zero::ParameterSpec& parameter : unit.parameters) {
      // A frozen one has no gradients that are added up.
      if (parameter.tied_outside && parameter.trainable) return true;
    }
  }
  return false;
}

checkpoint::ModelPart ModelPart::checkpoint_part() const {
  if (is_sharded()) {
    const models::ModelCut& cut = *model_->cut();
    return {.model = models::WholeOf(model_->spec(), cut),
            .parameters = cut.parameters,
            .shards = cut.shards};
  }
  if (!has_stages()) return {};
  return {.model = model_->spec()};
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
  return model_->FlopsOf(unit, WholeBatch()).value_or(models::UnitFlops());
}

std::vector<profile::UnitSize> ModelPart::UnitsOfStep() const {
  std::vector<profile::UnitSize> units;
  for (const zero::UnitSpec& unit : model_->spec()) units.push_back({.name = unit.name});
  const zero::ModelSpec part = spec();
  for (int u = 0; u < part_.units(); ++u) {
    const int stage = part_.StageOf(u);
    profile::UnitSize& unit = units[static_cast<size_t>(stage)];
    for (const zero::ParameterSpec& parameter : part[static_cast<size_t>(u)].parameters) {
      unit.parameters += parameter.size;
    }
    const models::UnitFlops once = FlopsOf(stage);
    for (int64_t m = 0; m < place_.job.config.batch.gradient_accumulation_steps; ++m) {
      for (size_t pass = 0; pass < once.size(); ++pass) unit.flops[pass] += once[pass];
    }
  }
  return units;
}

profile::Training ModelPart::TrainingOfStep() const {
  const auto of_sample = static_cast<double>(data_.training->positions());
  const auto tokens = static_cast<double>(WholeBatch().rows());
  profile::Training training = {
      .tokens_of_step = static_cast<double>(place_.job.config.batch.train_batch_size) * of_sample,
      .pairs_over_causal = 2 * of_sample / (of_sample + 1)};
  const zero::ModelSpec whole =
      is_sharded() ? models::WholeOf(model_->spec(), *model_->cut()) : model_->spec();
  for (size_t unit = 0; unit < whole.size(); ++unit) {
    for (const zero::ParameterSpec& parameter : whole[unit].parameters) {
      training.parameters += parameter.size;
    }
    const models::UnitFlops flops =
        model_->WholeFlopsOf(static_cast<int>(unit), WholeBatch()).value_or(models::UnitFlops());
    for (const profile::Pass pass : {profile::Pass::kForward, profile::Pass::kBackward}) {
      const profile::Flops& of = flops[static_cast<size_t>(pass)];
      training.causal_flops_per_token += (of.products + of.attention) / tokens;
      training.flops_per_token +=
          (of.products + of.attention * training.pairs_over_causal) / tokens;
    }
  }
  return training;
}

absl::Status ModelPart::Allocate(zero::ZeroOptimizer& zero) {
  const ModelPasses::Options options = {.samples = shape_.samples,
                                        .positions = positions(),
                                        .targets_begin = targets_begin(),
                                        .is_whole = !has_stages(),
                                        .at = place_.grid.coordinates(),
                                        .data_ranks = place_.grid.shape().data};
  passes_ = std::make_unique<ModelPasses>(options, part_, *model_, zero);
  return absl::OkStatus();
}

absl::Status ModelPart::Initialize(int parameter, absl::Span<float> values) const {
  const int number = part_.parameters()[static_cast<size_t>(parameter)];
  if (!is_sharded()) {
    model_->Initialize(number, place_.job.seed, values);
    return absl::OkStatus();
  }
  const models::ModelCut& cut = *model_->cut();
  const parallel::Shard& shard = cut.parameters[static_cast<size_t>(number)];
  std::vector<float> whole(static_cast<size_t>(shard.size()));
  model_->Initialize(number, place_.job.seed, absl::MakeSpan(whole));
  models::CutValues(shard, cut.shards, whole, values);
  return absl::OkStatus();
}

parallel::StageModule& ModelPart::Train(StepBatch& batch) {
  passes_->Train(batch);
  return *passes_;
}

parallel::StageModule& ModelPart::Evaluate(StepBatch& batch) {
  passes_->Evaluate(batch);
  return *passes_;
}

absl::Status ModelPart::Open(int64_t step) {
  const data::LoaderOptions options = {
      .batch = place_.job.config.batch.train_batch_size,
      .rank = {.rank = place_.grid.coordinates().data,
               .ranks = place_.grid.shape().data,
               .micro_batch = shape_.samples},
      .seed = place_.job.seed,
      .shuffle = data_.shuffle,
      .drop_last = data_.drop_last || place_.job.config.drop_last,
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

void ModelPart::CopyPart(const uint8_t* input, const uint8_t* target, int64_t sample,
                         uint8_t* micro_batch) const {
  const data::Samples& samples = *data_.training;
  uint8_t* const to_input = micro_batch + sample * input_bytes();
  uint8_t* const to_target = micro_batch + targets_begin() + sample * target_bytes();
  if (!context_ranks_.share()) {
    std::memcpy(to_input, input, static_cast<size_t>(input_bytes()));
    std::memcpy(to_target, target, static_cast<size_t>(target_bytes()));
    return;
  }
  const data::PositionRows rows = samples.position_rows();
  CopyRows(context_ranks_, samples.positions(), rows.input, samples.input_bytes(), input, to_input);
  CopyRows(context_ranks_, samples.positions(), rows.target, samples.target_bytes(), target,
           to_target);
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
    const auto* const inputs = reinterpret_cast<const uint8_t*>(of.inputs);
    const auto* const targets = reinterpret_cast<const uint8_t*>(of.targets);
    for (int64_t i = 0; i < filled; ++i) {
      CopyPart(inputs + i * data_.training->input_bytes(),
               targets + i * data_.training->target_bytes(), i, batch.host_samples_of(m));
    }
  }
  // Of all ranks, with replicas too: a replica's gradient weighs as its losses do, so that the mean
  // over replicas is that of all.
  const auto ranks = static_cast<double>(place_.grid.shape().data * context_ranks_.size());
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
    uint8_t* const targets = whole_.data() + samples.input_bytes();
    BRIGADE_RETURN_IF_ERROR(samples.Read(first + i, whole_.data(), targets));
    CopyPart(whole_.data(), targets, i, host);
  }
  return absl::OkStatus();
}

}  // namespace brigade::train
