#ifndef BRIGADE_EXAMPLES_GPT_STAGE_SETUP_H_
#define BRIGADE_EXAMPLES_GPT_STAGE_SETUP_H_

// With what the executor and the optimizer of one stage of a pipeline are made, so that they fit
// each other, the model's part and its plan. Without a pipeline there is one stage.

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::gpt {

// The schedule's, and at the end of all stages the optimizer's step, the one collective of
// StagePasses. Errors of the schedule.
absl::StatusOr<parallel::PipelineSchedule> ListsOf(const parallel::PipelineShape& pipeline);

// Of a micro-batch: the residual stream in the rows that this rank has.
parallel::BoundaryShape BoundaryOf(const PassShape& shape);

PassSlots SlotsOf(const parallel::StageBuffers& buffers);

// The config's, with the order in which this stage uses its weights: without a pipeline by the
// units of its backward pass, else by the runs of its list.
zero::ZeroOptions ZeroOptionsOf(const TrainConfig& config, const PartPlan& plan,
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
// ranks. Beside them, the one with the pipeline's other end where the model's tokens are at both.
absl::StatusOr<ZeroGroups> CreateZeroGroups(const TrainConfig& config, parallel::Grid& grid,
                                            const ModelPart& part);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_STAGE_SETUP_H_
