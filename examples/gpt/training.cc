#include "brigade/examples/gpt/training.h"

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/gloo/world.h"
#include "brigade/collectives/threads/thread_group.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/rank_trainer.h"

namespace brigade::gpt {
namespace {

std::string NameOf(int rank) { return absl::StrCat("rank ", rank); }

absl::StatusOr<std::unique_ptr<device::Context>> NewContext(const Job& job, int rank,
                                                            Recorder& recorder) {
  device::ContextOptions options;
  options.device = job.device;
  options.compute_threads = 1;
  options.name = NameOf(rank);
  options.tracer = &recorder.tracer();
  return device::Context::Create(options);
}

absl::StatusOr<Outcome> TrainRank(const Job& job, collectives::Communicator& communicator,
                                  device::Context& context, const Watchers& watchers) {
  const std::string name = NameOf(communicator.rank());
  BRIGADE_ASSIGN_OR_RETURN(compute, context.NewStream("compute"));
  BRIGADE_ASSIGN_OR_RETURN(trainer, RankTrainer::Create(job, communicator, context, *compute));
  watchers.recorder.Begin(name);
  Observer* const observer = communicator.rank() == 0 ? watchers.observer : nullptr;
  const absl::StatusOr<bool> interrupted = trainer->Train(observer, watchers.stop);
  BRIGADE_RETURN_IF_ERROR(interrupted.status());
  RankSummary summary = trainer->Summary();
  summary.time = watchers.recorder.End(name);
  BRIGADE_ASSIGN_OR_RETURN(summaries, trainer->Gather(summary));
  Outcome outcome = {std::move(summaries), *interrupted};
  if (communicator.rank() == 0 && watchers.report != nullptr) watchers.report(outcome);
  // All is done and said: a rank that fails from here on is no error.
  communicator.Barrier(*compute).IgnoreError();
  compute->Synchronize().IgnoreError();
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> TrainOnThreads(const Job& job, int ranks, const Watchers& watchers) {
  BRIGADE_ASSIGN_OR_RETURN(group, collectives::ThreadGroup::Create({.size = ranks}));
  std::mutex mutex;
  absl::Status first_error;  // guarded by mutex, as is outcome
  Outcome outcome;
  const auto run = [&](int rank) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(context, NewContext(job, rank, watchers.recorder));
    BRIGADE_ASSIGN_OR_RETURN(engine, group->Join(rank, *context));
    BRIGADE_ASSIGN_OR_RETURN(communicator,
                             collectives::Communicator::Create(std::move(engine), *context));
    absl::StatusOr<Outcome> mine = TrainRank(job, *communicator, *context, watchers);
    if (!mine.ok()) {
      {
        std::lock_guard lock(mutex);
        first_error.Update(mine.status());
      }
      communicator->Abort(mine.status());
      return mine.status();
    }
    if (rank == 0) outcome = *std::move(mine);
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Status status = run(rank);
      std::lock_guard lock(mutex);
      first_error.Update(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first_error.ok()) return first_error;
  return outcome;
}

absl::StatusOr<Outcome> TrainAsProcess(const Job& job, const collectives::Placement& placement,
                                       const Watchers& watchers) {
  BRIGADE_ASSIGN_OR_RETURN(context, NewContext(job, placement.rank, watchers.recorder));
  BRIGADE_ASSIGN_OR_RETURN(communicator, collectives::JoinGlooWorld(placement, {}, *context));
  absl::StatusOr<Outcome> outcome = TrainRank(job, *communicator, *context, watchers);
  if (!outcome.ok()) communicator->Abort(outcome.status());
  return outcome;
}

}  // namespace brigade::gpt
