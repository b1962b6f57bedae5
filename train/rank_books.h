#ifndef BRIGADE_TRAIN_RANK_BOOKS_H_
#define BRIGADE_TRAIN_RANK_BOOKS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/context.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/recompute/stash.h"
#include "brigade/replicas/outer_optimizer.h"
#include "brigade/train/rank_digests.h"
#include "brigade/train/rank_memory.h"
#include "brigade/train/stage_setup.h"
#include "brigade/train/summary.h"
#include "brigade/train/task.h"
#include "brigade/train/times/pass_times.h"
#include "brigade/train/times/recorder.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::train {

// What one rank has, sends and takes, as it was measured and as the formulas say.
class RankBooks {
 public:
  // Whose books they are. All must outlive them.
  struct Accounts {
    const Job& job;
    const parallel::Grid& grid;
    const ZeroGroups zero_groups;
    device::Context& context;
    Recorder& recorder;
    const zero::ZeroOptimizer& zero;
    const RankPart& part;
    const parallel::PipelineExecutor& executor;
    // Null: there are none.
    const RankDigests* digests = nullptr;
  };

  explicit RankBooks(const Accounts& accounts);

  // Time and traffic between the two calls are those of the steps; nothing is under way at either.
  // `steps`: those that were made before.
  void Start(int64_t steps);
  void Stop();
  // Nanoseconds between all calls so far, and at the last Start.
  int64_t counted_ns() const { return counted_ns_; }
  int64_t started_ns() const { return started_ns_; }

  // What saves have of the host's memory, as RankCheckpoints says.
  void SetStaging(int64_t bytes) { staging_bytes_ = bytes; }
  // With replicas, behind their Join: what brings them together. It outlives the books.
  void SetOuter(const replicas::OuterOptimizer& outer) { outer_ = &outer; }
  // A round has gathered so many bytes of weights inside the replica.
  void AddGathered(int64_t bytes) { gathered_ += bytes; }

  // What this rank has sent so far in each such group; of the pipeline's, in its channels too.
  GroupBytes SentInGroups() const;
  // To the other replicas, by this rank.
  int64_t SentBetween() const;

  // What counts beside the books, and is told with them.
  RankSummary& summary() { return summary_; }
  absl::StatusOr<RankSummary> Summary() const;

 private:
  // Calls visit(index of the group, communicator) for each group whose communicator no group before
  // it has; behind that of the ranks with the same weights, for those that ZeRO makes of it.
  void ForEachOwnGroup(absl::FunctionRef<void(size_t, collectives::Communicator&)> visit) const;
  // By formula, of which ZeRO's part is this.
  absl::StatusOr<GroupBytes> SentInGroupsOfStep(const zero::Traffic& traffic) const;
  absl::Status AddRounds(RankSummary& summary) const;
  // Of the digests so far, which are no part of a step: of some.
  int64_t SentDigests() const { return of_.digests == nullptr ? 0 : of_.digests->sent_bytes(); }
  collectives::Communicator& summing() const { return SummingGroup(of_.zero_groups); }
  absl::Status AddMemory(RankSummary& summary) const;
  void AddStash(RankSummary& summary) const;

  const Accounts of_;
  int64_t staging_bytes_ = 0;
  RankSummary summary_;
  // Of all steps, by the model's stages.
  std::vector<PassSeconds> passes_;
  // At the start.
  zero::Traffic traffic_before_;
  zero::Movement movement_before_;
  recompute::StashMovement stash_before_;
  GroupBytes sent_before_ = {};
  // Of rounds, since the books began, and at the start; and how many steps the replicas had made
  // when they began.
  const replicas::OuterOptimizer* outer_ = nullptr;
  int64_t gathered_ = 0, gathered_before_ = 0, between_before_ = 0;
  int64_t digests_before_ = 0;
  int64_t outer_steps_before_ = 0;
  int64_t started_ns_ = 0;
  int64_t counted_ns_ = 0;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_RANK_BOOKS_H_
