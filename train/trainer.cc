#include "brigade/train/trainer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/status_macros.h"
#include "brigade/optim/schedule.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/replicas/options.h"
#include "brigade/train/codec_choice.h"
#include "brigade/train/comparisons.h"

namespace brigade::train {
namespace {

// Ends the group of ranks that are threads, if it is an error: the others wait for this one, which
// has no communicator yet to tell them by.
absl::Status ToldGroup(const absl::Status& status, const TrainerOptions& options) {
  if (!status.ok() && options.group != nullptr) options.group->Abort(status);
  return status;
}

// What ranks of one job have in common: another value is another result, or a hang.
collectives::JobValues ValuesOf(const Job& job, const Task& task) {
  const zero::ZeroOptions& zero = job.config.zero;
  std::string rates;
  for (const optim::ParameterGroup& group : zero.optimizer.groups) {
    for (const float rate : optim::LearningRates(group.schedule, group.lr)) {
      absl::StrAppend(&rates, rate, " ");
    }
    absl::StrAppend(&rates, group.weight_decay, " ", group.beta1, " ", group.beta2, " ", group.eps,
                    " ", group.momentum, "\n");
  }
  collectives::JobValues values = {
      {"grid", parallel::ToString(job.config.grid)},
      {"pipeline", absl::StrCat("schedule ", parallel::ToString(job.config.schedule),
                                ", partition by ", parallel::ToString(job.config.partition))},
      {"seed", absl::StrCat(job.seed)},
      {"steps", absl::StrCat(job.steps)},
      {"evaluation", absl::StrCat("every ", job.evaluate_every, " steps")},
      {"batch", absl::StrCat(job.config.batch.train_batch_size, " samples, ",
                             job.config.batch.train_micro_batch_size_per_gpu, " at once")},
      {"stage", absl::StrCat(zero.stage)},
      {"replicas", job.config.replicas == 0 ? "none"
                                            : absl::StrCat(job.config.replicas, " of ",
                                                           replicas::Describe(job.config.outer))},
      {"offload",
       absl::StrCat(
           "optimizer state on the ", std::string(device::ToString(zero.offload.optimizer_state)),
           ", parameters on the ", std::string(device::ToString(zero.offload.parameters)),
           zero.offload.delay_update ? absl::StrCat(", delayed after ", zero.offload.delay_warm_up)
                                     : "")},
      {"type", std::string(precision::ShortName(zero.dtype))},
      {"dropout", absl::StrCat(job.config.dropout)},
      {"times of recomputation",
       job.config.recompute_times == RecomputeTimes::kMeasured ? "measured" : "operations"},
      {"checkpoints",
       absl::StrCat("every ", job.checkpoints.save_every, " steps to ", job.checkpoints.save,
                    ", resumed from ", job.checkpoints.resume, ", keep ", job.checkpoints.keep,
                    ", fall_back ", job.checkpoints.fall_back, ", may differ ",
                    absl::StrJoin(job.checkpoints.may_differ, ","))},
      {"digests", absl::StrCat("to ", job.digests.file.empty() ? "nowhere" : "a file", " every ",
                               job.digests.every, " steps, ranks compared every ", VerifyEvery(job),
                               ", step ", job.digests.dump_step, " dumped to ", job.digests.dump)},
      {"optimizer", absl::StrCat(static_cast<int>(zero.optimizer.kind), " (rates and the like ",
                                 collectives::DigestOf(rates), ")")},
  };
  const collectives::JobValues of_task = task.Values(job);
  values.insert(values.begin(), of_task.begin(), of_task.end());
  return values;
}

absl::Status CheckSteps(const Job& job) {
  if (job.steps > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(job.steps, " steps; a training has at least one"));
}

}  // namespace

device::Device DeviceOf(const Job& job, const collectives::LaunchInfo& launch_info) {
  const bool has_own = launch_info.launched && job.device.kind == device::DeviceKind::kCuda;
  return has_own ? device::Cuda(launch_info.local_rank) : job.device;
}

absl::StatusOr<std::unique_ptr<device::Context>> ContextOf(const Job& job, int rank,
                                                           Recorder& recorder) {
  device::ContextOptions options;
  options.device = job.device;
  options.compute_threads = 1;
  options.name = absl::StrCat("rank ", rank);
  options.tracer = &recorder.tracer();
  options.memory_limit_bytes = job.device_limit_bytes;
  options.link_bytes_per_second = static_cast<double>(job.device_link);
  return device::Context::Create(options);
}

const std::atomic<bool> Trainer::kNeverStops = false;

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(Job job, ModelFactory model,
                                                         TrainingData data,
                                                         const collectives::LaunchInfo& launch_info,
                                                         const Options& options) {
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  BRIGADE_RETURN_IF_ERROR(ToldGroup(
      trainer->Own(std::move(job), std::move(model), std::move(data), launch_info), options));
  BRIGADE_RETURN_IF_ERROR(trainer->Connect(launch_info));
  BRIGADE_RETURN_IF_ERROR(trainer->Told(trainer->Prepare(launch_info.local_rank)));
  return trainer;
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(Job job, const Task& task,
                                                         const collectives::LaunchInfo& launch_info,
                                                         const Options& options) {
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  trainer->task_ = &task;
  BRIGADE_RETURN_IF_ERROR(ToldGroup(trainer->Own(std::move(job), launch_info), options));
  BRIGADE_RETURN_IF_ERROR(trainer->Connect(launch_info));
  BRIGADE_RETURN_IF_ERROR(trainer->Told(trainer->Prepare(launch_info.local_rank)));
  return trainer;
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const Job& job, const Task& task,
                                                         collectives::Communicator& communicator,
                                                         int local_rank, device::Context& context,
                                                         const Options& options) {
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  trainer->job_ = &job;
  trainer->task_ = &task;
  trainer->context_ = &context;
  trainer->communicator_ = &communicator;
  if (options.watch == nullptr) {
    return trainer->Told(
        absl::InvalidArgumentError("a trainer over a context that is there needs "
                                   "the watch whose recorder follows this"));
  }
  trainer->UseWatch(*options.watch);
  BRIGADE_RETURN_IF_ERROR(trainer->Told(CheckSteps(job)));
  BRIGADE_RETURN_IF_ERROR(trainer->Told(trainer->Prepare(local_rank)));
  return trainer;
}

// The other ranks must not wait for one that ends early.
Trainer::~Trainer() {
  if (communicator_ != nullptr && !has_ended_ && error_.ok()) {
    Told(absl::CancelledError(absl::StrCat("rank ", rank(), " left the training before its end")))
        .IgnoreError();
  }
  if (watch_ != nullptr && watch_->lanes() != nullptr) watch_->lanes()->Abort();
}

absl::Status Trainer::Own(Job job, const collectives::LaunchInfo& launch_info) {
  BRIGADE_RETURN_IF_ERROR(CheckSteps(job));
  job.device = DeviceOf(job, launch_info);
  own_job_ = std::make_unique<Job>(std::move(job));
  job_ = own_job_.get();
  return absl::OkStatus();
}

absl::Status Trainer::Own(Job job, ModelFactory model, TrainingData data,
                          const collectives::LaunchInfo& launch_info) {
  data.drop_last = data.drop_last || job.config.drop_last;
  if (job.steps == 0 && data.training != nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(job.steps, data.Steps(job.config.batch.train_batch_size));
    if (job.steps == 0) {
      return absl::InvalidArgumentError("neither steps nor epochs: a training without end");
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(own_task_, ModelTask::Create(std::move(model), std::move(data)));
  task_ = own_task_.get();
  return Own(std::move(job), launch_info);
}

absl::Status Trainer::Connect(const collectives::LaunchInfo& launch_info) {
  absl::Status watched;
  if (options_.watch == nullptr) {
    auto own = Watch::Create(*job_, {.rank = launch_info.rank});
    watched = own.status();
    // The others hear of the error when they have met.
    own_watch_ = own.ok() ? *std::move(own) : Watch::Silent();
  }
  UseWatch(own_watch_ != nullptr ? *own_watch_ : *options_.watch);
  BRIGADE_RETURN_IF_ERROR(ToldGroup(Meet(launch_info), options_));
  BRIGADE_RETURN_IF_ERROR(Told(watched));
  return Told(RankLanes::Start(watch_->lanes(), *communicator_));
}

absl::Status Trainer::Meet(const collectives::LaunchInfo& launch_info) {
  BRIGADE_ASSIGN_OR_RETURN(own_context_, ContextOf(*job_, launch_info.rank, watch_->recorder()));
  collectives::InitOptions init = {.backend = options_.backend,
                                   .group = options_.group,
                                   .rendezvous_folder = options_.rendezvous_folder,
                                   .interface = options_.interface,
                                   .verify_collectives = options_.verify_collectives,
                                   .nccl = options_.nccl,
                                   .communicator = job_->config.communicator};
  if (init.group == nullptr && !launch_info.launched &&
      init.backend == collectives::Backend::kAuto && launch_info.size == 1) {
    BRIGADE_ASSIGN_OR_RETURN(init.group, collectives::ThreadGroup::Create({.size = 1}));
  }
  if (init.group == nullptr) {
    init.job_values = ValuesOf(*job_, *task_);
    init.timeout = options_.timeout;
    init.connect_timeout = options_.connect_timeout;
  }
  BRIGADE_ASSIGN_OR_RETURN(own_communicator_, collectives::Init(launch_info, init, *own_context_));
  context_ = own_context_.get();
  communicator_ = own_communicator_.get();
  return absl::OkStatus();
}

void Trainer::UseWatch(Watch& watch) {
  watch_ = &watch;
  observers_.Add(watch.observer());
  if (options_.observer != nullptr) observers_.Add(*options_.observer);
}

absl::Status Trainer::Prepare(int local_rank) {
  BRIGADE_ASSIGN_OR_RETURN(compute_, context_->CreateStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(grid_, parallel::Grid::Create(job_->config.grid, *communicator_));
  if (job_->config.open.any()) {
    BRIGADE_ASSIGN_OR_RETURN(
        chosen_, WithChosenCodecs(*job_, *task_, *grid_, local_rank, *context_, *compute_));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      ranks_, RankTrainer::Create(chosen_.has_value() ? *chosen_ : *job_, *task_, *grid_, *context_,
                                  *compute_, watch_->recorder()));
  return absl::OkStatus();
}

// While the rank's trainer is there: it waits for its streams at its end, and they may wait for
// other ranks.
absl::Status Trainer::Told(const absl::Status& status) {
  if (status.ok() || !error_.ok()) return status;
  error_ = status;
  if (grid_ != nullptr) {
    error_ = grid_->Abort(status);
  } else {
    communicator_->Abort(status);
  }
  return error_;
}

absl::Status Trainer::Call(absl::FunctionRef<absl::Status()> call) {
  if (!error_.ok()) return error_;
  if (has_ended_) return absl::FailedPreconditionError("the training has had its end");
  return Told(call());
}

absl::StatusOr<Outcome> Trainer::Fit() {
  bool interrupted = false;
  BRIGADE_RETURN_IF_ERROR(Call([&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(interrupted, ranks_->Train(observer(), stop()));
    return absl::OkStatus();
  }));
  return Leave(interrupted);
}

absl::StatusOr<bool> Trainer::Batch() {
  bool has_batch = true;
  BRIGADE_RETURN_IF_ERROR(Call([&]() -> absl::Status {
    // Before anything that is due is evaluated, saved or read.
    BRIGADE_RETURN_IF_ERROR(ranks_->CheckOneByOne());
    if (!ranks_->in_step()) {
      BRIGADE_ASSIGN_OR_RETURN(
          has_batch, ranks_->BeginStep(observer(), stop().load(std::memory_order_relaxed)));
    }
    return has_batch ? ranks_->Forward() : absl::OkStatus();
  }));
  return has_batch;
}

absl::Status Trainer::Backward() {
  return Call([&] { return ranks_->Backward(); });
}

absl::Status Trainer::Step() {
  return Call([&] {
    return ranks_->in_step() && !ranks_->is_whole() ? absl::OkStatus() : ranks_->EndStep();
  });
}

absl::StatusOr<Outcome> Trainer::Finish() {
  bool interrupted = false;
  BRIGADE_RETURN_IF_ERROR(Call([&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(interrupted, ranks_->End(observer()));
    return absl::OkStatus();
  }));
  return Leave(interrupted);
}

absl::StatusOr<double> Trainer::Evaluate() {
  double loss = 0;
  BRIGADE_RETURN_IF_ERROR(Call([&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(loss, ranks_->EvaluateNow(observer()));
    return absl::OkStatus();
  }));
  return loss;
}

absl::Status Trainer::Save() {
  return Call([&] { return ranks_->SaveNow(observer()); });
}

absl::Status Trainer::Load(const std::string& folder) {
  return Call([&] { return ranks_->Load(folder, observer()); });
}

absl::Status Trainer::WithModel(UseModel use) {
  if (!error_.ok()) return error_;
  models::Model* const model = ranks_->model();
  if (model == nullptr) return absl::FailedPreconditionError("the task's model is no Model");
  const auto call = [&] { return use(*model, ranks_->zero(), ranks_->ranks()); };
  return Told(has_ended_ ? call() : ranks_->ChangeModel(observer(), call));
}

absl::StatusOr<Outcome> Trainer::Leave(bool interrupted) {
  Outcome outcome;
  BRIGADE_RETURN_IF_ERROR(Call([&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const RankSummary summary, ranks_->Summary());
    BRIGADE_ASSIGN_OR_RETURN(auto summaries, ranks_->Gather(summary));
    if (watch_->lanes() != nullptr) watch_->lanes()->Finish();
    outcome.ranks = std::move(summaries);
    outcome.interrupted = interrupted;
    // Who has interrupted it waits for no disk.
    outcome.incomplete = ranks_->Incomplete(/*waits=*/!interrupted);
    if (chosen_.has_value()) outcome.zero = chosen_->config.zero;
    return absl::OkStatus();
  }));
  has_ended_ = true;
  if (own_watch_ != nullptr) own_watch_->Close(Watch::kPatience);
  if (rank() == 0 && options_.report != nullptr) options_.report(outcome);
  // All is done and said: a rank that fails from here on is no error.
  communicator_->Barrier(*compute_).IgnoreError();
  compute_->Synchronize().IgnoreError();
  return outcome;
}

}  // namespace brigade::train
