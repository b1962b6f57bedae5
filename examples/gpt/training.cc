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

// The error of the rank where it began, which the others hear of.
class FirstError {
 public:
  void Note(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    status_.Update(status);
  }
  absl::Status status() const {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  absl::Status status_;
};

absl::StatusOr<Outcome> TrainRank(const Job& job, collectives::Communicator& communicator,
                                  device::Context& context, const Watchers& watchers,
                                  FirstError& first_error) {
  const std::string name = NameOf(communicator.rank());
  BRIGADE_ASSIGN_OR_RETURN(compute, context.NewStream("compute"));
  std::unique_ptr<RankTrainer> trainer;
  const auto train = [&]() -> absl::StatusOr<Outcome> {
    BRIGADE_ASSIGN_OR_RETURN(created, RankTrainer::Create(job, communicator, context, *compute));
    trainer = std::move(created);
    watchers.recorder.Begin(name);
    Observer* const observer = communicator.rank() == 0 ? watchers.observer : nullptr;
    BRIGADE_ASSIGN_OR_RETURN(interrupted, trainer->Train(observer, watchers.stop));
    RankSummary summary = trainer->Summary();
    summary.time = watchers.recorder.End(name);
    BRIGADE_ASSIGN_OR_RETURN(summaries, trainer->Gather(summary));
    Outcome outcome = {std::move(summaries), interrupted};
    if (communicator.rank() == 0 && watchers.report != nullptr) watchers.report(outcome);
    // All is done and said: a rank that fails from here on is no error.
    communicator.Barrier(*compute).IgnoreError();
    compute->Synchronize().IgnoreError();
    return outcome;
  };
  absl::StatusOr<Outcome> outcome = train();
  if (!outcome.ok()) {
    first_error.Note(outcome.status());
    // While the trainer is there: it waits for its streams at its end, and they may wait for other ranks.
    communicator.Abort(outcome.status());
  }
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> TrainOnThreads(const Job& job, int ranks, const Watchers& watchers) {
  BRIGADE_ASSIGN_OR_RETURN(group, collectives::ThreadGroup::Create({.size = ranks}));
  FirstError first_error;
  Outcome outcome;
  const auto run = [&](int rank) -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(context, NewContext(job, rank, watchers.recorder));
    BRIGADE_ASSIGN_OR_RETURN(engine, group->Join(rank, *context));
    BRIGADE_ASSIGN_OR_RETURN(communicator,
                             collectives::Communicator::Create(std::move(engine), *context));
    BRIGADE_ASSIGN_OR_RETURN(mine, TrainRank(job, *communicator, *context, watchers, first_error));
    if (rank == 0) outcome = std::move(mine);
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { first_error.Note(run(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
  BRIGADE_RETURN_IF_ERROR(first_error.status());
  return outcome;
}

absl::StatusOr<Outcome> TrainAsProcess(const Job& job, const collectives::Placement& placement,
                                       const Watchers& watchers) {
  BRIGADE_ASSIGN_OR_RETURN(context, NewContext(job, placement.rank, watchers.recorder));
  BRIGADE_ASSIGN_OR_RETURN(communicator, collectives::JoinGlooWorld(placement, {}, *context));
  FirstError first_error;
  return TrainRank(job, *communicator, *context, watchers, first_error);
}

}  // namespace brigade::gpt
