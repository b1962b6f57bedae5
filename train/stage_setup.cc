#include "brigade/train/stage_setup.h"

#include <algorithm>
#include <utility>

#include "brigade/device/status_macros.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/replicas/replica_groups.h"
#include "brigade/zero/shard_groups.h"

namespace brigade::train {

absl::StatusOr<parallel::PipelineSchedule> ListsOf(const parallel::PipelineShape& pipeline) {
  BRIGADE_ASSIGN_OR_RETURN(parallel::PipelineSchedule lists, parallel::CreateSchedule(pipeline));
  parallel::StageCollective step = {"optimizer step", {}};
  for (int stage = 0; stage < pipeline.stages; ++stage) step.stages.push_back(stage);
  BRIGADE_RETURN_IF_ERROR(parallel::AddCollective(std::move(step), lists));
  return lists;
}

zero::ZeroOptions ZeroOptionsOf(const TrainConfig& config, const RankPart& part,
                                const parallel::StageList& list) {
  zero::ZeroOptions options = config.zero;
  options.chunks = part.first_units();
  if (config.grid.pipeline == 1) {
    options.backward_units = part.backward_units();
  } else {
    options.runs = parallel::RunsOf(list);
  }
  return options;
}

absl::StatusOr<ZeroGroups> CreateZeroGroups(const TrainConfig& config, parallel::Grid& grid,
                                            bool is_tied_outside) {
  const zero::ZeroOptions& options = config.zero;
  constexpr auto kReplica = parallel::GridGroup::kReplica;
  zero::OuterGroups outer = {
      .world = &grid.world(),
      .tied = is_tied_outside ? grid.group(parallel::GridGroup::kTied) : nullptr};
  const int ranks = grid.replica().size();
  const int of_replica = ranks / std::max(config.replicas, 1);
  const int of_group = options.shard_ranks == 0 ? of_replica : options.shard_ranks;
  const int rank = grid.replica().rank();
  auto colors = zero::ShardGroups::ColorsOf(rank, of_group, options.hpz_ranks, options.node_ranks);
  if (options.hpz_ranks > 0) {
    BRIGADE_ASSIGN_OR_RETURN(outer.near, grid.Split(kReplica, colors.near));
  }
  if (options.node_ranks > 0) {
    BRIGADE_ASSIGN_OR_RETURN(outer.node, grid.Split(kReplica, colors.node));
    BRIGADE_ASSIGN_OR_RETURN(outer.nodes, grid.Split(kReplica, colors.nodes));
  }
  collectives::Communicator *inside = &grid.replica(), *between_replicas = nullptr;
  if (config.replicas > 0) {
    const auto of = replicas::ReplicaGroups::ColorsOf(rank, of_replica);
    BRIGADE_ASSIGN_OR_RETURN(inside, grid.Split(kReplica, of.inside));
    outer.world = inside;
    BRIGADE_ASSIGN_OR_RETURN(between_replicas, grid.Split(kReplica, of.between));
    // Groups of one replica exchange gradients, those of another one are none of theirs.
    colors.between += of.inside * of_group;
  }
  if (of_group == of_replica) return ZeroGroups{*inside, outer, between_replicas};
  BRIGADE_ASSIGN_OR_RETURN(collectives::Communicator* const shards,
                           grid.Split(kReplica, colors.shards));
  ZeroGroups groups = {*shards, outer, between_replicas};
  BRIGADE_ASSIGN_OR_RETURN(groups.outer.between, grid.Split(kReplica, colors.between));
  return groups;
}

}  // namespace brigade::train
