#include "brigade/train/rank_memory.h"

#include <algorithm>
#include <utility>

#include "brigade/collectives/algorithms/workspace.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/train/step_batch.h"
#include "brigade/train/summary.h"

namespace brigade::train {
namespace {

using collectives::Communicator;
using device::Purpose;
using device::Tier;

// Of all communicators.
absl::StatusOr<int64_t> WorkspaceBytes(const RankMemory& rank) {
  int64_t bytes = 0;
  absl::Status status;
  const std::vector<parallel::PassCollective> passes = rank.part.CollectivesOfPasses();
  ForEachOwnGroup(rank.grid, rank.zero_groups, [&](size_t, Communicator& group) {
    collectives::Workspace workspace;
    const auto add = [&](const absl::StatusOr<collectives::Workspace>& needed) {
      status.Update(needed.status());
      if (needed.ok()) workspace = collectives::Max(workspace, *needed);
    };
    for (const parallel::PassCollective& each : passes) {
      if (rank.grid.group(each.group) == &group) add(group.WorkspaceFor(each.signature));
    }
    const zero::OuterGroups& outer = rank.zero_groups.outer;
    const std::pair<const Communicator*, zero::StepGroup> roles[] = {
        {&rank.zero_groups.shards, zero::StepGroup::kShards},
        {outer.between, zero::StepGroup::kBetween},
        {outer.near, zero::StepGroup::kNear},
        {outer.node, zero::StepGroup::kNode},
        {outer.nodes, zero::StepGroup::kNodes},
        {outer.world, zero::StepGroup::kWorld},
        {outer.tied, zero::StepGroup::kTied}};
    for (const auto& [its, role] : roles) {
      if (&group != its) continue;
      add(zero::WorkspaceOfStep(rank.parameters, rank.zero, group, role,
                                rank.zero_groups.shards.rank()));
    }
    if (&group == outer.world) add(group.WorkspaceFor(kStepSums));
    if (rank.digests != nullptr && &group == &SummingGroup(rank.zero_groups)) {
      add(group.WorkspaceFor(rank.digests->signature()));
    }
    bytes += workspace.bytes();
  });
  BRIGADE_RETURN_IF_ERROR(status);
  return bytes;
}

}  // namespace

void ForEachOwnGroup(const parallel::Grid& grid, const ZeroGroups& zero_groups,
                     absl::FunctionRef<void(size_t, Communicator&)> visit) {
  std::vector<const Communicator*> seen;
  for (const parallel::GridGroup each : parallel::kGridGroups) {
    Communicator* const group = grid.group(each);
    if (group == nullptr || std::find(seen.begin(), seen.end(), group) != seen.end()) continue;
    seen.push_back(group);
    visit(static_cast<size_t>(each), *group);
    if (group != &grid.replica()) continue;
    if (&zero_groups.shards != group) visit(static_cast<size_t>(each), zero_groups.shards);
    const zero::OuterGroups& outer = zero_groups.outer;
    for (Communicator* const made : {outer.between, outer.near, outer.node, outer.nodes}) {
      if (made != nullptr) visit(static_cast<size_t>(each), *made);
    }
    // Of a replica with several groups.
    const bool is_own = zero_groups.replicas != nullptr && outer.world != &zero_groups.shards;
    if (is_own) visit(static_cast<size_t>(each), *outer.world);
  }
}

absl::StatusOr<std::vector<zero::MemoryTerm>> MemoryOfRank(const RankMemory& rank) {
  std::vector<zero::MemoryTerm> terms =
      zero::MemoryOf(rank.parameters, rank.zero, rank.zero_groups.shards.rank());
  const auto add = [&terms](Tier tier, Purpose purpose, const char* name, int64_t bytes) {
    terms.push_back({tier, purpose, name, bytes});
  };
  BRIGADE_ASSIGN_OR_RETURN(const int64_t workspace, WorkspaceBytes(rank));
  add(Tier::kDevice, Purpose::kCommunication, "workspace of collectives", workspace);
  const int64_t micro_batches = rank.job.config.zero.micro_batches;
  const int64_t batches = kStepsInFlight * StepBatch::Bytes(rank.part.batch_shape(), micro_batches);
  add(Tier::kHost, Purpose::kScratch, "batches to come, and losses", 2 * batches);
  add(Tier::kDevice, Purpose::kActivations, "batches", batches);
  add(Tier::kDevice, Purpose::kActivations, "boundaries of the pipeline",
      parallel::PipelineExecutor::Bytes(rank.buffers, rank.part.boundary()));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<zero::MemoryTerm> passes, rank.part.Memory());
  terms.insert(terms.end(), passes.begin(), passes.end());
  if (rank.digests != nullptr) {
    const digests::DigestBytes digests = rank.digests->bytes();
    add(Tier::kDevice, Purpose::kScratch, "digests", digests.device);
    add(Tier::kHost, Purpose::kScratch, "digests", digests.host);
  }
  return terms;
}

int64_t PassingBytes(const zero::Plan& parameters, int ranks) {
  int64_t largest = 0;
  for (const zero::Bucket& bucket : parameters.buckets()) largest = std::max(largest, bucket.size);
  return std::max(largest * static_cast<int64_t>(sizeof(float)),
                  static_cast<int64_t>(ranks) * static_cast<int64_t>(sizeof(RankSummary)));
}

}  // namespace brigade::train
