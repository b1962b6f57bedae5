#include "brigade/examples/gpt/rank_part.h"

#include <utility>

#include "brigade/device/file/file_store.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/examples/gpt/layers.h"
#include "brigade/examples/gpt/pipeline_parts.h"
#include "brigade/examples/gpt/text_batch.h"
#include "brigade/examples/gpt/trial.h"
#include "brigade/examples/gpt/unit_flops.h"
#include "brigade/nn/blas.h"
#include "brigade/recompute/stash.h"
#include "brigade/train/stage_parts.h"

namespace brigade::gpt {

using device::Purpose;
using device::Tier;

parallel::BoundaryShape BoundaryOf(const PassShape& shape) {
  return {shape.own_rows() * shape.model.width, shape.dtype};
}

PassSlots SlotsOf(const parallel::StageBuffers& buffers) {
  return {.activations = static_cast<int>(buffers.activations),
          .deferred = static_cast<int>(buffers.deferred)};
}

const device::FileOptions* StashFileOf(const train::TrainConfig& config) {
  return config.recompute.stash == recompute::StashTier::kFile ? &config.zero.offload.file
                                                               : nullptr;
}

checkpoint::ModelPart CheckpointPartOf(const PassShape& shape) {
  // With the shapes that parameters have where they are not cut.
  ModelOptions uncut = shape.model;
  uncut.tensor_shards = 1;
  checkpoint::ModelPart part = {.model = SpecOf(uncut), .shards = shape.shards()};
  for (int p = 0; p <= HeadParameter(shape.model, kFinalNormBias); ++p) {
    part.parameters.push_back(ShardOf(shape.model, p));
  }
  return part;
}

RankPart::RankPart(const Parts& parts)
    : of_(parts),
      shape_(ShapeOf(parts.model, parts.job.config, parts.grid.coordinates())),
      groups_{&parts.grid.tensor(), &parts.grid.context()},
      text_(static_cast<size_t>(parts.model.context + 1)) {}

train::BatchShape RankPart::batch_shape() const { return BatchShapeOf(shape_); }

absl::StatusOr<PassCosts> RankPart::Costs() {
  const train::TrainConfig& config = of_.job.config;
  const bool measures = config.recompute_times == train::RecomputeTimes::kMeasured ||
                        config.partition.by == parallel::PartitionChoice::By::kTime;
  if (!measures) return CountOperations(shape_);
  // Where a rank fails here others may wait for it in the passes: its error ends the grid.
  BRIGADE_ASSIGN_OR_RETURN(const PassCosts measured,
                           MeasurePasses(of_.job, of_.corpus, shape_, groups_, of_.context,
                                         *of_.compute, *of_.recorder));
  return AgreeOnCosts(measured, of_.grid.world());
}

absl::Status RankPart::Plan(int stage, const parallel::StageBuffers& buffers) {
  // The same on all ranks, or an error on all.
  BRIGADE_ASSIGN_OR_RETURN(const PassCosts costs, Costs());
  const train::TrainConfig& config = of_.job.config;
  const parallel::PipelineShape pipeline = config.pipeline_shape();
  const std::optional<parallel::MemoryLimit> limit = MemoryLimitOf(of_.job, shape_, pipeline);
  BRIGADE_ASSIGN_OR_RETURN(
      const std::vector<int> boundaries,
      PartsOf(shape_, pipeline, config.partition, costs, limit.has_value() ? &*limit : nullptr));
  BRIGADE_RETURN_IF_ERROR(train::AgreeOnParts(boundaries, of_.grid.world()));
  const ModelPart part(of_.model, ChunksOf(pipeline, boundaries, stage));
  const PassSlots slots = SlotsOf(buffers);
  BRIGADE_ASSIGN_OR_RETURN(PartPlan plan, PlanPart(shape_, costs, part, slots, config.recompute));
  BRIGADE_ASSIGN_OR_RETURN(PartPlan without, PlanPart(shape_, costs, part, slots, {}));
  Take(std::move(plan), std::move(without));
  return absl::OkStatus();
}

void RankPart::Take(PartPlan plan, std::optional<PartPlan> without) {
  plan_ = std::move(plan);
  without_ = std::move(without);
}

zero::ModelSpec RankPart::spec() const { return SpecOf(of_.model, shape_.shards(), plan_->part); }

absl::StatusOr<std::vector<zero::MemoryTerm>> RankPart::Memory() const {
  std::vector<zero::MemoryTerm> terms = {
      {Tier::kDevice, Purpose::kActivations, "activations", ActivationBytes(shape_, *plan_)}};
  BRIGADE_ASSIGN_OR_RETURN(const int64_t layers, Layers::Bytes(shape_, of_.context));
  terms.push_back(
      {Tier::kDevice, Purpose::kScratch, "workspace of layers",
       nn::Blas::ScratchBytes(of_.context.device(), Layers::WorkspaceBytes(shape_)) + layers});
  if (plan_->WrittenBytes() == 0) return terms;
  const std::vector<int64_t> written = plan_->written_bytes();
  const device::FileOptions* const file = StashFileOf(of_.job.config);
  terms.push_back({Tier::kHost, Purpose::kActivations, "stashes",
                   plan_->slots.activations * recompute::Stash::HostBytes(written, file)});
  if (file != nullptr) {
    terms.push_back({Tier::kFile, Purpose::kActivations, "stashes",
                     plan_->slots.activations * recompute::Stash::FileBytes(written)});
  }
  return terms;
}

train::ActivationSummary RankPart::activations() const {
  const PartPlan& without = without_.has_value() ? *without_ : *plan_;
  return {.bytes = ActivationBytes(shape_, *plan_),
          .bytes_without = ActivationBytes(shape_, without),
          .time = plan_->time,
          .time_without = without.time};
}

recompute::StashMovement RankPart::stashed_in_pass() const {
  const int64_t written = plan_->WrittenBytes();
  const int64_t in_file = StashFileOf(of_.job.config) == nullptr ? 0 : written;
  return {.to_host = written, .from_host = written, .file_read = in_file, .file_written = in_file};
}

int64_t RankPart::stash_file_bytes() const {
  int64_t bytes = 0;
  for (const auto& stash : transformer_->stashes()) {
    if (stash->file() != nullptr) bytes += stash->file()->bytes();
  }
  return bytes;
}

absl::Status RankPart::Allocate(zero::ZeroOptimizer& zero) {
  BRIGADE_ASSIGN_OR_RETURN(transformer_, Transformer::Create(shape_, *plan_, of_.context, groups_,
                                                             StashFileOf(of_.job.config)));
  const int64_t of_micro_batch = shape_.rows() * of_.model.width;
  const StagePasses::Options options = {
      .dropout = {.probability = of_.job.config.dropout,
                  .seed = of_.job.seed,
                  .first_element = of_.grid.replica().rank() * micro_batches() * of_micro_batch},
      .elements_of_micro_batch = of_micro_batch,
      .counts_losses = counts_losses()};
  passes_ = std::make_unique<StagePasses>(options, *transformer_, zero);
  return absl::OkStatus();
}

absl::Status RankPart::Initialize(int parameter, absl::Span<float> values) const {
  InitializeParameter(of_.model, plan_->part.parameters()[static_cast<size_t>(parameter)],
                      of_.job.seed, shape_.shards(), values);
  return absl::OkStatus();
}

parallel::StageModule& RankPart::Train(train::StepBatch& batch) {
  passes_->Train(batch);
  return *passes_;
}

parallel::StageModule& RankPart::Evaluate(train::StepBatch& batch) {
  passes_->Evaluate(batch);
  return *passes_;
}

std::vector<profile::UnitSize> RankPart::UnitsOfStep() const {
  return gpt::UnitsOfStep(shape_, *plan_, micro_batches());
}

profile::Training RankPart::TrainingOfStep() const {
  return TrainingOf(of_.model, of_.job.config.batch.train_batch_size);
}

// Micro-batch by micro-batch, each data rank's side by side: which one has which depends on their
// number, what the batch consists of does not.
absl::Status RankPart::WriteStep(int64_t step, train::StepBatch& batch) {
  const train::BatchShape& shape = batch.shape();
  for (int64_t i = 0; i < batch.samples(); ++i) {
    const int64_t sample = of_.grid.coordinates().data * batch.samples() + i;
    SampleText(of_.corpus, of_.job.seed, step, sample, absl::MakeSpan(text_));
    WriteText(shape_, reinterpret_cast<const char*>(text_.data()),
              batch.host_samples_of(i / shape.samples) +
                  i % shape.samples * (shape.bytes / shape.samples));
  }
  return absl::OkStatus();
}

absl::Status RankPart::WriteHeldOut(int64_t first, int64_t micro_batch, train::StepBatch& batch) {
  const int64_t samples = HeldOutTexts(of_.corpus, of_.model.context);
  const train::BatchShape& shape = batch.shape();
  for (int64_t i = 0; i < shape.samples; ++i) {
    const int64_t sample = first + i < samples ? first + i : 0;
    WriteText(shape_, of_.corpus.held_out.data() + sample * of_.model.context,
              batch.host_samples_of(micro_batch) + i * (shape.bytes / shape.samples));
  }
  return absl::OkStatus();
}

}  // namespace brigade::gpt
