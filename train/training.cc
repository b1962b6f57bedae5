#include "brigade/train/training.h"

#include <barrier>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/replicas/options.h"
#include "brigade/train/codec_choice.h"
#include "brigade/train/rank_trainer.h"

namespace brigade::train {
namespace {

std::string NameOf(int rank) { return absl::StrCat("rank ", rank); }

absl::StatusOr<std::unique_ptr<device::Context>> CreateContext(const Job& job, int rank,
                                                               Recorder& recorder) {
  device::ContextOptions options;
  options.device = job.device;
  options.compute_threads = 1;
  options.name = NameOf(rank);
  options.tracer = &recorder.tracer();
  options.memory_limit_bytes = job.device_limit_bytes;
  options.link_bytes_per_second = static_cast<double>(job.device_link);
  return device::Context::Create(options);
}

// The error of the rank where it began, which the others hear of.
class RootCause {
 public:
  void Note(const absl::Status& status) {
    device::MutexLock lock(mutex_);
    status_.Update(status);
  }
  absl::Status status() const {
    device::MutexLock lock(mutex_);
    return status_;
  }

 private:
  mutable device::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

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
      {"digests",
       absl::StrCat("to ", job.digests.file.empty() ? "nowhere" : "a file", " every ",
                    job.digests.every, " steps, ranks compared every ", job.digests.verify_every,
                    ", step ", job.digests.dump_step, " dumped to ", job.digests.dump)},
      {"optimizer", absl::StrCat(static_cast<int>(zero.optimizer.kind), " (rates and the like ",
                                 collectives::DigestOf(rates), ")")},
  };
  const collectives::JobValues of_task = task.Values(job);
  values.insert(values.begin(), of_task.begin(), of_task.end());
  return values;
}

// `local_rank`: among those of this host.
absl::StatusOr<Outcome> TrainRank(const Job& job, const Task& task,
                                  collectives::Communicator& communicator, int local_rank,
                                  device::Context& context, const Watchers& watchers,
                                  RootCause& root_cause) {
  const bool first = communicator.rank() == 0;
  // Its communicators outlive what is enqueued.
  std::unique_ptr<parallel::Grid> grid;
  BRIGADE_ASSIGN_OR_RETURN(auto compute, context.CreateStream("compute"));
  // The job, where its config leaves something to the cost model.
  std::optional<Job> chosen;
  std::unique_ptr<RankTrainer> trainer;
  const auto train = [&]() -> absl::StatusOr<Outcome> {
    BRIGADE_ASSIGN_OR_RETURN(grid, parallel::Grid::Create(job.config.grid, communicator));
    if (job.config.open.any()) {
      BRIGADE_ASSIGN_OR_RETURN(chosen,
                               WithChosenCodecs(job, task, *grid, local_rank, context, *compute));
    }
    BRIGADE_ASSIGN_OR_RETURN(
        trainer, RankTrainer::Create(chosen.has_value() ? *chosen : job, task, *grid, context,
                                     *compute, watchers.recorder));
    BRIGADE_ASSIGN_OR_RETURN(auto interrupted,
                             trainer->Train(first ? watchers.observer : nullptr, watchers.stop));
    BRIGADE_ASSIGN_OR_RETURN(const RankSummary summary, trainer->Summary());
    BRIGADE_ASSIGN_OR_RETURN(auto summaries, trainer->Gather(summary));
    if (watchers.lanes != nullptr) watchers.lanes->Finish();
    Outcome outcome = {std::move(summaries), interrupted};
    if (chosen.has_value()) outcome.zero = chosen->config.zero;
    return outcome;
  };
  absl::StatusOr<Outcome> outcome = train();
  if (!outcome.ok()) {
    // While the trainer is there: it waits for its streams at its end, and they may wait for other
    // ranks.
    absl::Status error = outcome.status();
    if (grid != nullptr) {
      error = grid->Abort(error);
    } else {
      communicator.Abort(error);
    }
    root_cause.Note(error);
    return error;
  }
  if (first && watchers.report != nullptr) watchers.report(*outcome);
  // All is done and said: a rank that fails from here on is no error.
  communicator.Barrier(*compute).IgnoreError();
  compute->Synchronize().IgnoreError();
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> TrainOnThreads(const Job& job, const Task& task, int ranks,
                                       const Watchers& watchers, absl::Duration timeout) {
  BRIGADE_ASSIGN_OR_RETURN(auto group,
                           collectives::ThreadGroup::Create(
                               {.size = ranks, .timeout = timeout, .stream_timeout = timeout}));
  BRIGADE_RETURN_IF_ERROR(parallel::Validate(job.config.grid, ranks));
  // What may be refused comes before the first rank begins to wait for the others.
  struct Rank {
    std::unique_ptr<device::Context> context;
    std::unique_ptr<collectives::Communicator> communicator;
  };
  std::vector<Rank> all;
  for (int rank = 0; rank < ranks; ++rank) {
    BRIGADE_ASSIGN_OR_RETURN(auto context, CreateContext(job, rank, watchers.recorder));
    collectives::LaunchInfo launch_info;
    launch_info.rank = rank;
    launch_info.size = ranks;
    BRIGADE_ASSIGN_OR_RETURN(
        auto communicator,
        collectives::Init(launch_info, {.group = group, .communicator = job.config.communicator},
                          *context));
    all.push_back({std::move(context), std::move(communicator)});
  }
  RootCause root_cause;
  Outcome outcome;
  std::barrier all_have_ended(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Rank& self = all[static_cast<size_t>(rank)];
      absl::StatusOr<Outcome> mine =
          TrainRank(job, task, *self.communicator, rank, *self.context, watchers, root_cause);
      if (rank == 0 && mine.ok()) outcome = *std::move(mine);
      // Others read its memory until they end; and it is freed by the thread that has waited for
      // them on its stream, or the race checker would see no order.
      all_have_ended.arrive_and_wait();
      self.communicator.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  BRIGADE_RETURN_IF_ERROR(root_cause.status());
  return outcome;
}

absl::StatusOr<Outcome> TrainAsProcess(const Job& job, const Task& task,
                                       const collectives::LaunchInfo& launch_info,
                                       collectives::Backend backend, const Watchers& watchers,
                                       absl::Duration timeout) {
  BRIGADE_ASSIGN_OR_RETURN(auto context, CreateContext(job, launch_info.rank, watchers.recorder));
  BRIGADE_ASSIGN_OR_RETURN(auto communicator,
                           collectives::Init(launch_info,
                                             {.backend = backend,
                                              .job_values = ValuesOf(job, task),
                                              .timeout = timeout,
                                              .communicator = job.config.communicator},
                                             *context));
  BRIGADE_RETURN_IF_ERROR(RankLanes::Start(watchers.lanes, *communicator));
  // Other ranks must not wait for one that has failed.
  const absl::Cleanup end_lanes = [&watchers] {
    if (watchers.lanes != nullptr) watchers.lanes->Abort();
  };
  RootCause root_cause;
  return TrainRank(job, task, *communicator, launch_info.local_rank, *context, watchers,
                   root_cause);
}

}  // namespace brigade::train
