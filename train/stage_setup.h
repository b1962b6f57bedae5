#ifndef BRIGADE_TRAIN_STAGE_SETUP_H_
#define BRIGADE_TRAIN_STAGE_SETUP_H_

// With what the executor and the optimizer of one stage of a pipeline are made, so that they fit
// each other and the model's part. Without a pipeline there is one stage.

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/train/config/config.h"
#include "brigade/train/task.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::train {

// The schedule's, and at the end of all stages the optimizer's step, their one collective. Errors
// of the schedule.
absl::StatusOr<parallel::PipelineSchedule> ListsOf(const parallel::PipelineShape& pipeline);

// The config's, with the order in which this stage uses its weights: without a pipeline by the
// units of its backward pass, else by the runs of its list.
zero::ZeroOptions ZeroOptionsOf(const TrainConfig& config, const RankPart& part,
                                const parallel::StageList& list);

// ZeRO's group of a rank, and those beside it.
struct ZeroGroups {
  collectives::Communicator& shards;
  // Its world has the ranks of this replica, where there are such.
  zero::OuterGroups outer;
  // Of replicas those with this one's place in each; else null.
  collectives::Communicator* replicas = nullptr;
};

// Where fewer ranks share a state than have the same weights (ZeroOptions::shard_ranks), and for
// those near each other (hpz_ranks), and for replicas, the grid makes the groups: a call of all
// ranks. Beside them, where a parameter is tied to another stage's, the one with its ranks.
absl::StatusOr<ZeroGroups> CreateZeroGroups(const TrainConfig& config, parallel::Grid& grid,
                                            bool is_tied_outside);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_STAGE_SETUP_H_
