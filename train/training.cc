#include "brigade/train/training.h"

#include <barrier>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/collectives/init.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/parallel/grid.h"

namespace brigade::train {
namespace {

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

}  // namespace

absl::StatusOr<Outcome> TrainOnThreads(const Job& job, const Task& task, int ranks,
                                       const TrainerOptions& options) {
  BRIGADE_ASSIGN_OR_RETURN(
      auto group,
      collectives::ThreadGroup::Create(
          {.size = ranks, .timeout = options.timeout, .stream_timeout = options.timeout}));
  BRIGADE_RETURN_IF_ERROR(parallel::Validate(job.config.grid, ranks));
  std::unique_ptr<Watch> own_watch;
  if (options.watch == nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(own_watch, Watch::Create(job, {.threads = ranks}));
  }
  TrainerOptions of_rank = options;
  if (own_watch != nullptr) {
    of_rank.watch = own_watch.get();
    // All is written when it is reported, as by a trainer alone.
    of_rank.report = [&](const Outcome& outcome) {
      own_watch->Close(Watch::kPatience);
      if (options.report != nullptr) options.report(outcome);
    };
  }
  // What may be refused comes before the first rank begins to wait for the others.
  struct Rank {
    std::unique_ptr<device::Context> context;
    std::unique_ptr<collectives::Communicator> communicator;
  };
  std::vector<Rank> all;
  for (int rank = 0; rank < ranks; ++rank) {
    BRIGADE_ASSIGN_OR_RETURN(auto context, ContextOf(job, rank, of_rank.watch->recorder()));
    collectives::LaunchInfo launch_info;
    launch_info.rank = rank;
    launch_info.size = ranks;
    BRIGADE_ASSIGN_OR_RETURN(auto communicator,
                             collectives::Init(launch_info,
                                               {.group = group,
                                                .rendezvous_folder = options.rendezvous_folder,
                                                .interface = options.interface,
                                                .verify_collectives = options.verify_collectives,
                                                .nccl = options.nccl,
                                                .communicator = job.config.communicator},
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
      const auto train = [&]() -> absl::StatusOr<Outcome> {
        BRIGADE_ASSIGN_OR_RETURN(const auto trainer, Trainer::Create(job, task, *self.communicator,
                                                                     rank, *self.context, of_rank));
        absl::StatusOr<Outcome> fitted = trainer->Fit();
        // Before the trainer waits for its streams: those that only hear of it come later.
        root_cause.Note(fitted.status());
        return fitted;
      };
      absl::StatusOr<Outcome> mine = train();
      root_cause.Note(mine.status());
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

}  // namespace brigade::train
