#include "brigade/examples/gpt/rank_trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/checkpoint/weights.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/file/file_store.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/pipeline_parts.h"
#include "brigade/examples/gpt/stage_setup.h"
#include "brigade/examples/gpt/trial.h"
#include "brigade/optim/schedule.h"
#include "brigade/optim/step_controller.h"
#include "brigade/train/times/clock.h"
#include "brigade/zero/plan/movement.h"

namespace brigade::gpt {
namespace {

using device::Purpose;
using precision::DType;

// Adds to a lack of memory what would need less of it.
absl::Status WithAdvice(const zero::ZeroOptions& options, const absl::Status& status) {
  // With files it may be the disk that is full.
  if (!absl::IsResourceExhausted(status) || options.offload.file_state()) return status;
  const bool has_all = options.stage == 3;
  const bool is_on_host =
      options.offload.enabled() && (!has_all || options.offload.parameters == device::Tier::kHost);
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; --offload=", has_all ? "all" : "optimizer",
                   is_on_host ? " --offload_to=file" : "", " keeps ",
                   has_all ? "weights and optimizer state" : "the optimizer state",
                   is_on_host ? " in a file" : " on the host, with --offload_to=file in a file",
                   options.stage == 0 ? ", from stage 1 on" : ""));
}

train::StepMemory MemoryOf(const device::MemoryStats& stats) {
  train::StepMemory memory = {.bytes = stats.current_bytes(), .peak_bytes = stats.peak_bytes()};
  for (size_t p = 0; p < device::kPurposes; ++p) {
    memory.by_purpose[p] = stats.current_bytes(static_cast<Purpose>(p));
    memory.peak_by_purpose[p] = stats.peak_bytes(static_cast<Purpose>(p));
  }
  return memory;
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

}  // namespace

RankTrainer::RankTrainer(const Job& job, parallel::Grid& grid, device::Context& context,
                         device::Stream& compute, train::Recorder& recorder)
    : job_(job),
      grid_(grid),
      shape_(ShapeOf(job, grid.coordinates())),
      groups_{&grid.tensor(), &grid.context()},
      context_(context),
      compute_(compute),
      recorder_(recorder),
      text_(static_cast<size_t>(job.model.context + 1)) {}

absl::StatusOr<std::unique_ptr<RankTrainer>> RankTrainer::Create(const Job& job,
                                                                 parallel::Grid& grid,
                                                                 device::Context& context,
                                                                 device::Stream& compute,
                                                                 train::Recorder& recorder) {
  BRIGADE_RETURN_IF_ERROR(Validate(job.model));
  BRIGADE_RETURN_IF_ERROR(CheckLength(job.corpus, job.model.context));
  BRIGADE_RETURN_IF_ERROR(CheckParts(job.model, job.config));
  std::unique_ptr<RankTrainer> trainer(new RankTrainer(job, grid, context, compute, recorder));
  BRIGADE_RETURN_IF_ERROR(Validate(trainer->shape_));
  // The same on all ranks, or an error on all.
  BRIGADE_ASSIGN_OR_RETURN(const PassCosts costs, trainer->Costs());
  BRIGADE_ASSIGN_OR_RETURN(PartPlan plan, trainer->PlanStage(costs));
  BRIGADE_ASSIGN_OR_RETURN(const PartPlan without,
                           PlanPart(trainer->shape_, costs, plan.part, plan.slots, {}));
  BRIGADE_RETURN_IF_ERROR(WithAdvice(job.config.zero, trainer->Allocate(std::move(plan))));
  RankSummary& summary = trainer->books_->summary();
  summary.activation_bytes = ActivationBytes(trainer->shape_, trainer->transformer_->plan());
  summary.activation_bytes_without = ActivationBytes(trainer->shape_, without);
  summary.planned_time = trainer->transformer_->plan().time;
  summary.planned_time_without = without.time;
  BRIGADE_ASSIGN_OR_RETURN(
      trainer->checkpoints_,
      RankCheckpoints::Create(job, CheckpointPartOf(trainer->shape_), *trainer->zero_,
                              *trainer->inside_, context, trainer->Replica()));
  BRIGADE_ASSIGN_OR_RETURN(trainer->start_, trainer->checkpoints_->Resume());
  if (!trainer->start_.is_resumed) BRIGADE_RETURN_IF_ERROR(trainer->Initialize());
  if (trainer->outer_ != nullptr) {
    if (trainer->start_.is_resumed) trainer->outer_->Resume(trainer->start_.step);
    BRIGADE_RETURN_IF_ERROR(trainer->outer_->Join(*trainer->between_));
    trainer->books_->SetOuter(*trainer->outer_);
  }
  if (trainer->digests_ != nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(trainer->start_.digests,
                             trainer->digests_->Start(trainer->start_.step));
  }
  if (const device::FileStore* const file = trainer->zero_->file(); file != nullptr) {
    const zero::ZeroOptions& options = trainer->zero_->options();
    const zero::Movement moved = zero::MovementOfStep(trainer->zero_->plan(), options);
    trainer->start_.file = absl::StrCat("Each rank has a file of ", file->bytes(), " bytes in ",
                                        options.offload.file.directory, " (", file->description(),
                                        "). Of each rank ", zero::WearOf(moved.file_written), ".");
  }
  trainer->start_.codecs = job.config.codec_choice;
  if (job.config.profiler.enabled) {
    BRIGADE_ASSIGN_OR_RETURN(trainer->profiler_,
                             StepProfiler::Create({.job = job,
                                                   .grid = grid,
                                                   .shape = trainer->shape_,
                                                   .context = context,
                                                   .compute = compute,
                                                   .recorder = recorder,
                                                   .zero = *trainer->zero_,
                                                   .transformer = *trainer->transformer_,
                                                   .books = *trainer->books_}));
  }
  // The model is of what is left when parameters are in.
  context.memory_stats().ResetPeaks();
  context.host_memory_stats().ResetPeaks();
  return trainer;
}

absl::StatusOr<PassCosts> RankTrainer::Costs() {
  const bool measures = job_.config.recompute_times == train::RecomputeTimes::kMeasured ||
                        job_.config.partition.by == parallel::PartitionChoice::By::kTime;
  if (!measures) return CountOperations(shape_);
  // Where a rank fails here others may wait for it in the passes: its error ends the grid.
  BRIGADE_ASSIGN_OR_RETURN(const PassCosts measured,
                           MeasurePasses(job_, shape_, groups_, context_, compute_, recorder_));
  return AgreeOnCosts(measured, grid_.world());
}

absl::StatusOr<PartPlan> RankTrainer::PlanStage(const PassCosts& costs) {
  const parallel::PipelineShape pipeline = job_.config.pipeline_shape();
  const std::optional<parallel::MemoryLimit> limit = MemoryLimitOf(job_, shape_, pipeline);
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int> boundaries,
                           PartsOf(shape_, pipeline, job_.config.partition, costs,
                                   limit.has_value() ? &*limit : nullptr));
  // Memory, and what recomputation leaves, may be another on each rank; parts that do not fit
  // together would be another model.
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnLines(
      {absl::StrCat("parts of the model from its stages ", absl::StrJoin(boundaries, ", "))},
      grid_.world()));
  BRIGADE_ASSIGN_OR_RETURN(parallel::PipelineSchedule lists, ListsOf(pipeline));
  BRIGADE_ASSIGN_OR_RETURN(
      executor_, parallel::PipelineExecutor::Create(std::move(lists), BoundaryOf(shape_), grid_,
                                                    context_, compute_));
  const ModelPart part(job_.model, ChunksOf(pipeline, boundaries, executor_->stage()));
  return PlanPart(shape_, costs, part, SlotsOf(executor_->buffers()), job_.config.recompute);
}

absl::Status RankTrainer::Allocate(PartPlan plan) {
  BRIGADE_ASSIGN_OR_RETURN(const ZeroGroups groups,
                           CreateZeroGroups(job_.config, grid_, plan.part));
  BRIGADE_ASSIGN_OR_RETURN(
      zero_, zero::ZeroOptimizer::Create(SpecOf(job_.model, shape_.shards(), plan.part),
                                         ZeroOptionsOf(job_.config, plan, executor_->list()),
                                         groups.shards, context_, compute_, groups.outer));
  between_ = groups.replicas;
  inside_ = groups.outer.world;
  if (between_ != nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(
        outer_, replicas::OuterOptimizer::Create(*zero_, job_.config.outer, *inside_, context_));
    BRIGADE_RETURN_IF_ERROR(between_->Reserve(kStepSums));
  }
  BRIGADE_ASSIGN_OR_RETURN(transformer_, Transformer::Create(shape_, std::move(plan), context_,
                                                             groups_, StashFileOf(job_)));
  BRIGADE_RETURN_IF_ERROR(inside_->Reserve(kStepSums));
  BRIGADE_ASSIGN_OR_RETURN(
      digests_,
      RankDigests::Create(job_, CheckpointPartOf(shape_),
                          {.zero = *zero_,
                           .ranks = *inside_,
                           .context = context_,
                           .in_flight = kInFlight,
                           .is_first_rank = grid_.rank() == 0,
                           .is_first_replica = between_ == nullptr || between_->rank() == 0}));
  const int64_t of_micro_batch = shape_.rows() * job_.model.width;
  BRIGADE_ASSIGN_OR_RETURN(
      passes_, StagePasses::Create({.dropout = {.probability = job_.config.dropout,
                                                .seed = job_.seed,
                                                .first_element = grid_.replica().rank() *
                                                                 micro_batches() * of_micro_batch},
                                    .elements_of_micro_batch = of_micro_batch,
                                    .counts_losses = counts_losses()},
                                   *transformer_, *zero_, context_, compute_));
  for (int i = 0; i < kInFlight; ++i) {
    BRIGADE_ASSIGN_OR_RETURN(StepBatch batch, StepBatch::Create(shape_, micro_batches(), context_));
    steps_.push_back(std::move(batch));
  }
  books_ = std::make_unique<RankBooks>(RankBooks::Accounts{.job = job_,
                                                           .grid = grid_,
                                                           .shape = shape_,
                                                           .groups = groups_,
                                                           .zero_groups = groups,
                                                           .context = context_,
                                                           .recorder = recorder_,
                                                           .zero = *zero_,
                                                           .transformer = *transformer_,
                                                           .executor = *executor_,
                                                           .digests = digests_.get()});
  const optim::ParameterGroup& group = job_.config.zero.optimizer.groups[0];
  learning_rates_ = optim::LearningRates(group.schedule, group.lr);
  return absl::OkStatus();
}

absl::Status RankTrainer::Initialize() {
  if (const std::string& weights = job_.checkpoints.weights; !weights.empty()) {
    return checkpoint::LoadWeights(weights, *zero_, *inside_, {}, device::SystemCalls::Real(),
                                   CheckpointPartOf(shape_));
  }
  const std::vector<int>& parameters = transformer_->plan().part.parameters();
  return zero_->InitializeParameters([&](int parameter, absl::Span<float> values) {
    InitializeParameter(job_.model, parameters[static_cast<size_t>(parameter)], job_.seed,
                        shape_.shards(), values);
    return absl::OkStatus();
  });
}

absl::Status RankTrainer::Synchronize() {
  BRIGADE_RETURN_IF_ERROR(executor_->Synchronize());
  BRIGADE_RETURN_IF_ERROR(grid_.world().Synchronize(zero_->step_stream()));
  return grid_.status();
}

bool RankTrainer::IsRound(int64_t step) const {
  const replicas::OuterOptions& outer = job_.config.outer;
  return step + 1 <= outer.start_step || replicas::DueFragment(outer, step + 1) >= 0;
}

absl::Status RankTrainer::EnqueueStep(int64_t step, bool stop) {
  // Replicas stop together.
  if (outer_ != nullptr && !IsRound(step)) stop = false;
  StepBatch& batch = steps_[static_cast<size_t>(step % kInFlight)];
  BRIGADE_RETURN_IF_ERROR(train::MarkStep(compute_));
  // The batch's samples, micro-batch by micro-batch, each data rank's side by side: which one has
  // which depends on their number, what the batch consists of does not.
  for (int64_t i = 0; i < batch.texts(); ++i) {
    SampleText(job_.corpus, job_.seed, step, grid_.coordinates().data * batch.texts() + i,
               absl::MakeSpan(text_));
    batch.SetText(i, reinterpret_cast<const char*>(text_.data()));
  }
  BRIGADE_RETURN_IF_ERROR(batch.CopyToDevice({.stop = stop ? 1.0f : 0.0f}, compute_));
  passes_->Train(batch);
  if (digests_ != nullptr) BRIGADE_RETURN_IF_ERROR(digests_->Begin(step));
  BRIGADE_RETURN_IF_ERROR(executor_->Run(*passes_));
  device::Stream& stream = zero_->step_stream();
  if (digests_ != nullptr) BRIGADE_RETURN_IF_ERROR(digests_->Enqueue(step));
  BRIGADE_RETURN_IF_ERROR(stream.Wait(batch.computed()));
  BRIGADE_RETURN_IF_ERROR(EnqueueSums(batch, IsRound(step), stream));
  BRIGADE_RETURN_IF_ERROR(zero_->controller().RequestState(stream));
  BRIGADE_RETURN_IF_ERROR(stream.Record(batch.done()));
  batch.step = step;
  if (outer_ == nullptr) return absl::OkStatus();
  const int64_t gathered = zero_->traffic().parameters;
  BRIGADE_RETURN_IF_ERROR(outer_->Step());
  books_->AddGathered(zero_->traffic().parameters - gathered);
  return absl::OkStatus();
}

absl::Status RankTrainer::EnqueueSums(StepBatch& batch, bool of_all, device::Stream& stream) {
  // The loss is in the sums of those ranks alone that count it.
  BRIGADE_RETURN_IF_ERROR(
      inside_->AllReduce(batch.sums(), batch.sums(), kStepSums.count, kStepSums.dtype, {}, stream));
  if (between_ != nullptr && of_all) {
    BRIGADE_RETURN_IF_ERROR(between_->AllReduce(batch.sums(), batch.sums(), kStepSums.count,
                                                kStepSums.dtype, {}, stream));
  }
  return batch.CopySumsToHost(stream);
}

absl::Status RankTrainer::Collect(StepBatch& batch, train::Observer* observer) {
  if (batch.step < 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(batch.done().Synchronize());
  // On some engines the streams go on after a communicator's error, with what is no result.
  BRIGADE_RETURN_IF_ERROR(grid_.status());
  BRIGADE_ASSIGN_OR_RETURN(auto state, zero_->controller().TakeState());
  const StepSums sums = batch.host_sums();
  stopped_ = stopped_ || sums.stop > 0;

  const int64_t now = train::SteadyNs();
  const int ranks = grid_.replica().size();
  const int summed = between_ == nullptr || IsRound(batch.step) ? ranks : inside_->size();
  const double tokens = static_cast<double>(batch.losses() * ranks);
  const auto updates = static_cast<size_t>(std::max<int64_t>(state->step, 1));
  const train::StepMetrics metrics = {
      .step = batch.step + 1,
      .seconds = 1e-9 * static_cast<double>(books_->counted_ns() + now - books_->started_ns()),
      .loss = static_cast<double>(sums.loss) / summed,
      .tokens_per_second = tokens / (1e-9 * static_cast<double>(now - collected_ns_)),
      .loss_scale = static_cast<double>(state->loss_scale),
      .grad_norm = state->grad_norm,
      .learning_rate =
          static_cast<double>(learning_rates_[std::min(updates, learning_rates_.size()) - 1]),
      .skipped = state->skip != 0,
      .device_memory = MemoryOf(context_.memory_stats()),
      .host_memory = MemoryOf(context_.host_memory_stats()),
  };
  collected_ns_ = now;
  batch.step = -1;
  ++books_->summary().steps;
  if (observer != nullptr) BRIGADE_RETURN_IF_ERROR(observer->OnStep(metrics));
  if (digests_ != nullptr) {
    BRIGADE_RETURN_IF_ERROR(digests_->Collect(metrics.step - 1, metrics.skipped));
  }
  if (state->stuck_at_minimum != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step ", metrics.step, ": gradients overflow although the loss scale is at its minimum, ",
        metrics.loss_scale));
  }
  if (!metrics.skipped && !std::isfinite(metrics.loss)) {
    return absl::OutOfRangeError(
        absl::StrCat("step ", metrics.step, ": the loss is ", metrics.loss));
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::CollectAll(train::Observer* observer) {
  // Oldest first.
  std::vector<StepBatch*> batches;
  for (StepBatch& batch : steps_) batches.push_back(&batch);
  std::sort(batches.begin(), batches.end(),
            [](const StepBatch* a, const StepBatch* b) { return a->step < b->step; });
  for (StepBatch* batch : batches) BRIGADE_RETURN_IF_ERROR(Collect(*batch, observer));
  return absl::OkStatus();
}

absl::StatusOr<bool> RankTrainer::Train(train::Observer* observer, const std::atomic<bool>& stop) {
  if (observer != nullptr) BRIGADE_RETURN_IF_ERROR(observer->OnStart(start_));
  int64_t step = start_.step;
  // In the loop too, if it is due there.
  if (step == 0) BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(0, observer));
  StartCounting(step);
  for (; step < job_.steps; ++step) {
    BRIGADE_RETURN_IF_ERROR(Collect(steps_[static_cast<size_t>(step % kInFlight)], observer));
    if (stopped_) break;
    if (step > 0 && job_.evaluate_every > 0 && step % job_.evaluate_every == 0) {
      BRIGADE_RETURN_IF_ERROR(CollectAll(observer));
      if (stopped_) break;
      BRIGADE_RETURN_IF_ERROR(StopCounting(observer));
      BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(step, observer));
      StartCounting(step);
    }
    BRIGADE_RETURN_IF_ERROR(checkpoints_->SaveIfDue(step, observer));
    if (profiler_ != nullptr) BRIGADE_RETURN_IF_ERROR(profiler_->BeforeStep(step, observer));
    BRIGADE_RETURN_IF_ERROR(EnqueueStep(step, stop.load(std::memory_order_relaxed)));
    if (profiler_ != nullptr) BRIGADE_RETURN_IF_ERROR(profiler_->AfterStep());
  }
  BRIGADE_RETURN_IF_ERROR(CollectAll(observer));
  BRIGADE_RETURN_IF_ERROR(StopCounting(observer));
  if (!stopped_) BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(step, observer));
  BRIGADE_RETURN_IF_ERROR(checkpoints_->SaveAtEnd(step, observer));
  return stopped_;
}

void RankTrainer::StartCounting(int64_t steps) {
  books_->Start(steps);
  collected_ns_ = books_->started_ns();
}

absl::Status RankTrainer::StopCounting(train::Observer* observer) {
  BRIGADE_RETURN_IF_ERROR(Synchronize());
  books_->Stop();
  return profiler_ == nullptr ? absl::OkStatus() : profiler_->AtRest(observer);
}

absl::Status RankTrainer::EvaluateAndTell(int64_t step, train::Observer* observer) {
  BRIGADE_ASSIGN_OR_RETURN(auto loss, Evaluate());
  return observer == nullptr ? absl::OkStatus() : observer->OnEvaluation({step, loss});
}

// Texts side by side over the held-out part, dealt out to data ranks micro-batch by micro-batch.
// All ranks do as many passes; places beyond the end get the first text, whose loss is not counted.
absl::StatusOr<double> RankTrainer::Evaluate() {
  StepBatch& batch = steps_[0];
  const std::string& held_out = job_.corpus.held_out;
  const int64_t context = job_.model.context, of_micro = shape_.batch, data = grid_.shape().data;
  const int64_t texts = (static_cast<int64_t>(held_out.size()) - 1) / context;
  double sum = 0;
  for (int64_t first = 0; first < texts; first += data * batch.texts()) {
    const auto first_of = [&](int64_t micro_batch) {
      return first + (micro_batch * data + grid_.coordinates().data) * of_micro;
    };
    for (int64_t i = 0; i < batch.texts(); ++i) {
      const int64_t text = first_of(i / of_micro) + i % of_micro;
      batch.SetText(i, held_out.data() + (text < texts ? text : 0) * context);
    }
    BRIGADE_RETURN_IF_ERROR(batch.CopyToDevice({}, compute_));
    passes_->Evaluate(batch);
    BRIGADE_RETURN_IF_ERROR(executor_->RunForward(*passes_));
    // Stages without the model's end have computed none.
    if (counts_losses()) BRIGADE_RETURN_IF_ERROR(batch.CopyLossesToHost(compute_));
    BRIGADE_RETURN_IF_ERROR(Synchronize());
    for (int64_t micro = 0; counts_losses() && micro < micro_batches(); ++micro) {
      const float* const losses = batch.host_losses() + micro * shape_.rows();
      const int64_t counted =
          std::clamp<int64_t>(texts - first_of(micro), 0, of_micro) * shape_.positions();
      for (int64_t i = 0; i < counted; ++i) sum += static_cast<double>(losses[i]);
    }
  }
  BRIGADE_RETURN_IF_ERROR(batch.CopyToDevice({.loss = static_cast<float>(sum)}, compute_));
  BRIGADE_RETURN_IF_ERROR(EnqueueSums(batch, /*of_all=*/true, compute_));
  BRIGADE_RETURN_IF_ERROR(Synchronize());
  return static_cast<double>(batch.host_sums().loss) / static_cast<double>(texts * context);
}

absl::StatusOr<RankSummary> RankTrainer::Summary() const {
  BRIGADE_ASSIGN_OR_RETURN(RankSummary summary, books_->Summary());
  checkpoints_->AddTo(summary);
  return summary;
}

absl::StatusOr<std::vector<RankSummary>> RankTrainer::Gather(const RankSummary& mine) {
  collectives::Communicator& world = grid_.world();
  std::vector<RankSummary> all(static_cast<size_t>(world.size()));
  constexpr int64_t kBytes = sizeof(RankSummary);
  BRIGADE_ASSIGN_OR_RETURN(
      auto buffer, context_.Allocate(kBytes * world.size(), Purpose::kScratch, "summaries"));
  char* const data = static_cast<char*>(buffer.data());
  char* const own = data + world.rank() * kBytes;
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(own, &mine, kBytes));
  BRIGADE_RETURN_IF_ERROR(world.AllGather(own, data, kBytes, DType::kUint8, {}, compute_));
  BRIGADE_RETURN_IF_ERROR(compute_.Copy(all.data(), data, kBytes * world.size()));
  BRIGADE_RETURN_IF_ERROR(Synchronize());
  return all;
}

}  // namespace brigade::gpt
