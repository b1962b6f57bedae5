#include "brigade/train/rank_trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/checkpoint/model_part.h"
#include "brigade/checkpoint/weights.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/file/file_store.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/adafactor/adafactor_math.h"
#include "brigade/optim/schedule.h"
#include "brigade/optim/step_controller.h"
#include "brigade/train/stage_setup.h"
#include "brigade/train/times/clock.h"
#include "brigade/zero/plan/movement.h"

namespace brigade::train {
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

StepMemory MemoryOf(const device::MemoryStats& stats) {
  StepMemory memory = {.bytes = stats.current_bytes(), .peak_bytes = stats.peak_bytes()};
  for (size_t p = 0; p < device::kPurposes; ++p) {
    memory.by_purpose[p] = stats.current_bytes(static_cast<Purpose>(p));
    memory.peak_by_purpose[p] = stats.peak_bytes(static_cast<Purpose>(p));
  }
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankTrainer>> RankTrainer::Create(const Job& job, const Task& task,
                                                                 parallel::Grid& grid,
                                                                 device::Context& context,
                                                                 device::Stream& compute,
                                                                 Recorder& recorder) {
  std::unique_ptr<RankTrainer> trainer(
      new RankTrainer(job, task, grid, context, compute, recorder));
  BRIGADE_ASSIGN_OR_RETURN(trainer->part_,
                           task.CreatePart({job, grid, context, compute, recorder}));
  BRIGADE_RETURN_IF_ERROR(trainer->PlanStage());
  BRIGADE_RETURN_IF_ERROR(WithAdvice(job.config.zero, trainer->Allocate()));
  BRIGADE_ASSIGN_OR_RETURN(
      trainer->checkpoints_,
      RankCheckpoints::Create(job, task.Fields(job), trainer->part_->checkpoint_part(),
                              *trainer->zero_, *trainer->inside_, context, trainer->Replica()));
  trainer->books_->SetStaging(trainer->checkpoints_->staging_bytes());
  BRIGADE_ASSIGN_OR_RETURN(trainer->start_, trainer->checkpoints_->Resume());
  trainer->step_ = trainer->start_.step;
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
    BRIGADE_ASSIGN_OR_RETURN(trainer->profiler_, StepProfiler::Create({.job = job,
                                                                       .grid = grid,
                                                                       .context = context,
                                                                       .compute = compute,
                                                                       .recorder = recorder,
                                                                       .zero = *trainer->zero_,
                                                                       .part = *trainer->part_,
                                                                       .books = *trainer->books_}));
  }
  // The model is of what is left when parameters are in.
  context.memory_stats().ResetPeaks();
  context.host_memory_stats().ResetPeaks();
  return trainer;
}

absl::Status RankTrainer::PlanStage() {
  BRIGADE_ASSIGN_OR_RETURN(parallel::PipelineSchedule lists, ListsOf(job_.config.pipeline_shape()));
  BRIGADE_ASSIGN_OR_RETURN(
      executor_, parallel::PipelineExecutor::Create(std::move(lists), part_->boundary(), grid_,
                                                    context_, compute_));
  return part_->Plan(executor_->stage(), executor_->buffers());
}

absl::Status RankTrainer::Allocate() {
  BRIGADE_ASSIGN_OR_RETURN(const ZeroGroups groups,
                           CreateZeroGroups(job_.config, grid_, part_->is_tied_outside()));
  BRIGADE_ASSIGN_OR_RETURN(
      zero_, zero::ZeroOptimizer::Create(part_->spec(),
                                         ZeroOptionsOf(job_.config, *part_, executor_->list()),
                                         groups.shards, context_, compute_, groups.outer));
  between_ = groups.replicas;
  inside_ = groups.outer.world;
  if (between_ != nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(
        outer_, replicas::OuterOptimizer::Create(*zero_, job_.config.outer, *inside_, context_));
    BRIGADE_RETURN_IF_ERROR(between_->Reserve(kStepSums));
  }
  BRIGADE_RETURN_IF_ERROR(part_->Allocate(*zero_));
  BRIGADE_RETURN_IF_ERROR(inside_->Reserve(kStepSums));
  BRIGADE_ASSIGN_OR_RETURN(
      digests_,
      RankDigests::Create(job_, part_->checkpoint_part(),
                          {.zero = *zero_,
                           .ranks = *inside_,
                           .context = context_,
                           .in_flight = kInFlight,
                           .is_first_rank = grid_.rank() == 0,
                           .is_first_replica = between_ == nullptr || between_->rank() == 0}));
  for (int i = 0; i < kInFlight; ++i) {
    BRIGADE_ASSIGN_OR_RETURN(StepBatch batch,
                             StepBatch::Create(part_->batch_shape(), micro_batches(), context_));
    steps_.push_back(std::move(batch));
  }
  books_ = std::make_unique<RankBooks>(RankBooks::Accounts{.job = job_,
                                                           .grid = grid_,
                                                           .zero_groups = groups,
                                                           .context = context_,
                                                           .recorder = recorder_,
                                                           .zero = *zero_,
                                                           .part = *part_,
                                                           .executor = *executor_,
                                                           .digests = digests_.get()});
  const optim::ParameterGroup& group = job_.config.zero.optimizer.groups[0];
  learning_rates_ = optim::LearningRates(group.schedule, group.lr);
  return absl::OkStatus();
}

absl::Status RankTrainer::Initialize() {
  if (const std::string& weights = job_.checkpoints.weights; !weights.empty()) {
    return checkpoint::LoadWeights(weights, *zero_, *inside_, {}, device::SystemCalls::Real(),
                                   part_->checkpoint_part());
  }
  return zero_->InitializeParameters([&](int parameter, absl::Span<float> values) {
    return part_->Initialize(parameter, values);
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

absl::Status RankTrainer::EnqueueData(bool stop) {
  // Replicas stop together.
  if (outer_ != nullptr && !IsRound(step_)) stop = false;
  StepBatch& batch = BatchOf(step_);
  BRIGADE_RETURN_IF_ERROR(MarkStep(compute_));
  BRIGADE_RETURN_IF_ERROR(part_->WriteStep(step_, batch));
  BRIGADE_RETURN_IF_ERROR(batch.CopyToDevice({.stop = stop ? 1.0f : 0.0f}, compute_));
  return digests_ == nullptr ? absl::OkStatus() : digests_->Begin(step_);
}

absl::Status RankTrainer::CheckPass(bool is_backward) const {
  if (!in_step_) return absl::FailedPreconditionError("a pass outside of a step");
  if (is_backward != is_forward_ || micro_batch_ == micro_batches()) {
    return absl::FailedPreconditionError(absl::StrCat(
        is_backward ? "backward" : "forward", " pass, where the step has had ", micro_batch_,
        " of ", micro_batches(), " micro-batches", is_forward_ ? " and a forward pass" : ""));
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::RunStep() {
  BRIGADE_RETURN_IF_ERROR(CheckPass(/*is_backward=*/false));
  if (micro_batch_ > 0) {
    return absl::FailedPreconditionError("a whole step's passes, where some were made");
  }
  BRIGADE_RETURN_IF_ERROR(executor_->Run(part_->Train(BatchOf(step_))));
  micro_batch_ = micro_batches();
  ran_ = true;
  return absl::OkStatus();
}

absl::Status RankTrainer::CheckOneByOne() const {
  if (job_.config.grid.pipeline == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a pass alone, with a pipeline, whose passes go together in a step");
}

absl::Status RankTrainer::Forward() {
  BRIGADE_RETURN_IF_ERROR(CheckOneByOne());
  BRIGADE_RETURN_IF_ERROR(CheckPass(/*is_backward=*/false));
  BRIGADE_RETURN_IF_ERROR(part_->Train(BatchOf(step_))
                              .Forward({.micro_batch = static_cast<int>(micro_batch_)}, compute_));
  is_forward_ = true;
  return absl::OkStatus();
}

absl::Status RankTrainer::Backward() {
  BRIGADE_RETURN_IF_ERROR(CheckPass(/*is_backward=*/true));
  BRIGADE_RETURN_IF_ERROR(part_->Train(BatchOf(step_))
                              .Backward({.micro_batch = static_cast<int>(micro_batch_)}, compute_));
  is_forward_ = false;
  ++micro_batch_;
  return absl::OkStatus();
}

absl::Status RankTrainer::EndStep() {
  if (!in_step_ || !is_whole()) {
    return absl::FailedPreconditionError("the end of a step that has not had all its passes");
  }
  StepBatch& batch = BatchOf(step_);
  // The executor's lists have it.
  if (!ran_) BRIGADE_RETURN_IF_ERROR(part_->Train(batch).Collective(0, compute_));
  device::Stream& stream = zero_->step_stream();
  if (digests_ != nullptr) BRIGADE_RETURN_IF_ERROR(digests_->Enqueue(step_));
  BRIGADE_RETURN_IF_ERROR(stream.Wait(batch.computed()));
  BRIGADE_RETURN_IF_ERROR(EnqueueSums(batch, IsRound(step_), stream));
  BRIGADE_RETURN_IF_ERROR(zero_->controller().RequestState(stream));
  BRIGADE_RETURN_IF_ERROR(stream.Record(batch.done()));
  batch.step = step_;
  if (outer_ != nullptr) {
    const int64_t gathered = zero_->traffic().parameters;
    BRIGADE_RETURN_IF_ERROR(outer_->Step());
    books_->AddGathered(zero_->traffic().parameters - gathered);
  }
  if (profiler_ != nullptr) BRIGADE_RETURN_IF_ERROR(profiler_->AfterStep());
  in_step_ = false;
  ++step_;
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

double RankTrainer::LearningRateOf(int64_t update) const {
  const optim::OptimizerOptions& optimizer = job_.config.zero.optimizer;
  if (optimizer.kind == optim::OptimizerKind::kAdafactor && optimizer.adafactor.relative_step) {
    return kernels::AdafactorRelativeRate(update, optimizer.adafactor.warmup_init);
  }
  const auto at = std::min(static_cast<size_t>(update), learning_rates_.size());
  return static_cast<double>(learning_rates_[at - 1]);
}

absl::Status RankTrainer::Collect(StepBatch& batch, Observer* observer) {
  if (batch.step < 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(batch.done().Synchronize());
  // On some engines the streams go on after a communicator's error, with what is no result.
  BRIGADE_RETURN_IF_ERROR(grid_.status());
  BRIGADE_ASSIGN_OR_RETURN(auto state, zero_->controller().TakeState());
  const StepSums sums = batch.host_sums();
  stopped_ = stopped_ || sums.stop > 0;

  const int64_t now = SteadyNs();
  const int ranks = grid_.replica().size();
  const int summed = between_ == nullptr || IsRound(batch.step) ? ranks : inside_->size();
  const double tokens = static_cast<double>(batch.losses() * ranks);
  const StepMetrics metrics = {
      .step = batch.step + 1,
      .seconds = 1e-9 * static_cast<double>(books_->counted_ns() + now - books_->started_ns()),
      .loss = static_cast<double>(sums.loss) / summed * batch.weights.mean,
      .tokens_per_second = tokens / (1e-9 * static_cast<double>(now - collected_ns_)),
      .loss_scale = static_cast<double>(state->loss_scale),
      .grad_norm = state->grad_norm,
      .learning_rate = LearningRateOf(std::max<int64_t>(state->step, 1)),
      .skipped = state->skip != 0,
      .device_memory = MemoryOf(context_.memory_stats()),
      .host_memory = MemoryOf(context_.host_memory_stats()),
  };
  collected_ns_ = now;
  batch.step = -1;
  ++books_->summary().steps;
  if (observer != nullptr) BRIGADE_RETURN_IF_ERROR(observer->OnStep(metrics));
  if (digests_ != nullptr) {
    BRIGADE_RETURN_IF_ERROR(digests_->Collect(metrics.step - 1, metrics.skipped, observer));
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

absl::Status RankTrainer::CollectAll(Observer* observer) {
  // Oldest first.
  std::vector<StepBatch*> batches;
  for (StepBatch& batch : steps_) batches.push_back(&batch);
  std::sort(batches.begin(), batches.end(),
            [](const StepBatch* a, const StepBatch* b) { return a->step < b->step; });
  for (StepBatch* batch : batches) BRIGADE_RETURN_IF_ERROR(Collect(*batch, observer));
  return absl::OkStatus();
}

absl::StatusOr<bool> RankTrainer::Train(Observer* observer, const std::atomic<bool>& stop) {
  while (true) {
    BRIGADE_ASSIGN_OR_RETURN(const bool is_step,
                             BeginStep(observer, stop.load(std::memory_order_relaxed)));
    if (!is_step) break;
    BRIGADE_RETURN_IF_ERROR(RunStep());
    BRIGADE_RETURN_IF_ERROR(EndStep());
  }
  return End(observer);
}

absl::Status RankTrainer::Begin(Observer* observer) {
  if (has_begun_) return absl::OkStatus();
  has_begun_ = true;
  if (observer != nullptr) BRIGADE_RETURN_IF_ERROR(observer->OnStart(start_));
  // In the loop too, if it is due there.
  if (step_ == 0) BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(observer).status());
  StartCounting(step_);
  return absl::OkStatus();
}

absl::StatusOr<bool> RankTrainer::BeginStep(Observer* observer, bool stop) {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("the begin of a step"));
  BRIGADE_RETURN_IF_ERROR(Begin(observer));
  if (step_ >= job_.steps) return false;
  BRIGADE_RETURN_IF_ERROR(Collect(BatchOf(step_), observer));
  if (stopped_) return false;
  if (step_ > 0 && job_.evaluate_every > 0 && step_ % job_.evaluate_every == 0) {
    BRIGADE_RETURN_IF_ERROR(CollectAll(observer));
    if (stopped_) return false;
    BRIGADE_RETURN_IF_ERROR(StopCounting(observer));
    BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(observer).status());
    StartCounting(step_);
  }
  BRIGADE_RETURN_IF_ERROR(checkpoints_->SaveIfDue(step_, observer));
  if (profiler_ != nullptr) BRIGADE_RETURN_IF_ERROR(profiler_->BeforeStep(step_, observer));
  BRIGADE_RETURN_IF_ERROR(EnqueueData(stop));
  in_step_ = true;
  micro_batch_ = 0;
  is_forward_ = ran_ = false;
  return true;
}

absl::StatusOr<bool> RankTrainer::End(Observer* observer) {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("the end"));
  BRIGADE_RETURN_IF_ERROR(Begin(observer));
  BRIGADE_RETURN_IF_ERROR(Rest(observer));
  if (!stopped_) BRIGADE_RETURN_IF_ERROR(EvaluateAndTell(observer).status());
  BRIGADE_RETURN_IF_ERROR(checkpoints_->SaveAtEnd(step_, observer));
  return stopped_;
}

absl::Status RankTrainer::CheckBetweenSteps(const char* call) const {
  if (!in_step_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, ", where step ", step_ + 1, " is not at its end"));
}

absl::Status RankTrainer::Rest(Observer* observer) {
  BRIGADE_RETURN_IF_ERROR(CollectAll(observer));
  return StopCounting(observer);
}

absl::Status RankTrainer::AtRest(Observer* observer, absl::FunctionRef<absl::Status()> call) {
  BRIGADE_RETURN_IF_ERROR(CheckBetweenSteps("a call between steps"));
  const bool is_counting = is_counting_;
  if (is_counting) BRIGADE_RETURN_IF_ERROR(Rest(observer));
  BRIGADE_RETURN_IF_ERROR(call());
  if (is_counting) StartCounting(step_);
  return absl::OkStatus();
}

absl::Status RankTrainer::ChangeModel(Observer* observer,
                                      absl::FunctionRef<absl::Status()> change) {
  if (outer_ != nullptr) {
    return absl::FailedPreconditionError(
        "with replicas weights come from Job::checkpoints alone, from which the first round goes");
  }
  return AtRest(observer, [&]() -> absl::Status {
    BRIGADE_RETURN_IF_ERROR(checkpoints_->BeforeChange(step_, observer));
    return change();
  });
}

absl::StatusOr<double> RankTrainer::EvaluateNow(Observer* observer) {
  if (task_.held_out_samples() == 0) {
    return absl::FailedPreconditionError("there are no held-out samples to evaluate");
  }
  double loss = 0;
  BRIGADE_RETURN_IF_ERROR(AtRest(observer, [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(loss, EvaluateAndTell(observer));
    return absl::OkStatus();
  }));
  return loss;
}

absl::Status RankTrainer::SaveNow(Observer* observer) {
  if (job_.checkpoints.save.empty()) {
    return absl::FailedPreconditionError("Job::checkpoints.save names no folder to save to");
  }
  return AtRest(observer, [&] { return checkpoints_->SaveAtEnd(step_, observer); });
}

absl::Status RankTrainer::Load(const std::string& folder, Observer* observer) {
  if (outer_ != nullptr || digests_ != nullptr) {
    return absl::FailedPreconditionError(
        "with replicas or digests a training goes on from a checkpoint at its begin alone: "
        "Job::checkpoints.resume");
  }
  return AtRest(observer, [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const Start start, checkpoints_->GoOnFrom(folder, step_, observer));
    start_.step = step_ = start.step;
    start_.is_resumed = true;
    start_.resumed = start.resumed;
    stopped_ = false;
    // Before the first step OnStart tells of it.
    return has_begun_ && observer != nullptr ? observer->OnLoad(start_) : absl::OkStatus();
  });
}

void RankTrainer::StartCounting(int64_t steps) {
  is_counting_ = true;
  books_->Start(steps);
  collected_ns_ = books_->started_ns();
}

absl::Status RankTrainer::StopCounting(Observer* observer) {
  BRIGADE_RETURN_IF_ERROR(Synchronize());
  is_counting_ = false;
  books_->Stop();
  return profiler_ == nullptr ? absl::OkStatus() : profiler_->AtRest(observer);
}

absl::StatusOr<double> RankTrainer::EvaluateAndTell(Observer* observer) {
  if (task_.held_out_samples() == 0) return std::numeric_limits<double>::quiet_NaN();
  BRIGADE_ASSIGN_OR_RETURN(const double loss, Evaluate());
  if (observer != nullptr) BRIGADE_RETURN_IF_ERROR(observer->OnEvaluation({step_, loss}));
  return loss;
}

// Samples of the held-out part, dealt out to data ranks micro-batch by micro-batch. All ranks do as
// many passes; the losses of places behind the last sample are not counted.
absl::StatusOr<double> RankTrainer::Evaluate() {
  StepBatch& batch = steps_[0];
  const BatchShape shape = part_->batch_shape();
  const int64_t samples = task_.held_out_samples(), data = grid_.shape().data;
  double sum = 0;
  for (int64_t first = 0; first < samples; first += data * batch.samples()) {
    const auto first_of = [&](int64_t micro_batch) {
      return first + (micro_batch * data + grid_.coordinates().data) * shape.samples;
    };
    for (int64_t micro = 0; micro < micro_batches(); ++micro) {
      BRIGADE_RETURN_IF_ERROR(part_->WriteHeldOut(first_of(micro), micro, batch));
    }
    BRIGADE_RETURN_IF_ERROR(batch.CopyToDevice({}, compute_));
    BRIGADE_RETURN_IF_ERROR(executor_->RunForward(part_->Evaluate(batch)));
    // Stages without the model's end have computed none.
    const bool counts = part_->counts_losses();
    if (counts) BRIGADE_RETURN_IF_ERROR(batch.CopyLossesToHost(compute_));
    BRIGADE_RETURN_IF_ERROR(Synchronize());
    for (int64_t micro = 0; counts && micro < micro_batches(); ++micro) {
      const float* const losses = batch.host_losses() + micro * shape.losses;
      const int64_t counted = std::clamp<int64_t>(samples - first_of(micro), 0, shape.samples) *
                              (shape.losses / shape.samples);
      for (int64_t i = 0; i < counted; ++i) sum += static_cast<double>(losses[i]);
    }
  }
  BRIGADE_RETURN_IF_ERROR(batch.CopyToDevice({.loss = static_cast<float>(sum)}, compute_));
  BRIGADE_RETURN_IF_ERROR(EnqueueSums(batch, /*of_all=*/true, compute_));
  BRIGADE_RETURN_IF_ERROR(Synchronize());
  return static_cast<double>(batch.host_sums().loss) / static_cast<double>(task_.held_out_losses());
}

absl::Status RankTrainer::Incomplete(bool waits) {
  return digests_ == nullptr ? absl::OkStatus() : digests_->Incomplete(waits);
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

}  // namespace brigade::train
