#ifndef BRIGADE_TRAIN_RANK_MEMORY_H_
#define BRIGADE_TRAIN_RANK_MEMORY_H_

// What a rank of a training needs, to the byte: the formulas that reports stand beside what was
// measured, and by which a tuner knows beforehand what fits.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/buffers.h"
#include "brigade/train/rank_digests.h"
#include "brigade/train/stage_setup.h"
#include "brigade/train/task.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::train {

// Steps whose batches are in memory.
inline constexpr int kStepsInFlight = 2;

// A rank, as far as its memory goes by it. The communicators of grid and groups are asked what they
// would allocate; nothing is allocated, and no other rank is called.
struct RankMemory {
  const Job& job;
  const parallel::Grid& grid;
  const ZeroGroups& zero_groups;
  // Planned.
  const RankPart& part;
  const parallel::StageBuffers& buffers;
  const zero::Plan& parameters;
  // With what follows from the plan (ZeroOptionsOf).
  const zero::ZeroOptions& zero;
  // Null: there are none.
  const RankDigests* digests = nullptr;
};

// The ranks that train one model.
inline collectives::Communicator& SummingGroup(const ZeroGroups& zero_groups) {
  return *zero_groups.outer.world;
}

// Calls visit(index of the group, communicator) for each group of the grid whose communicator no
// group before it has; behind that of the ranks with the same weights, for those that ZeRO makes of
// it.
void ForEachOwnGroup(const parallel::Grid& grid, const ZeroGroups& zero_groups,
                     absl::FunctionRef<void(size_t, collectives::Communicator&)> visit);

// All that the rank has while it trains, and nothing that passes; what replicas have beside it is
// not in it (replicas/outer_optimizer.h), nor that of saves (RankCheckpoints::staging_bytes).
// Errors of Communicator::Resolve.
absl::StatusOr<std::vector<zero::MemoryTerm>> MemoryOfRank(const RankMemory& rank);

// Of the device, beside that, for a moment: one bucket in fp32 while parameters go in, or, at the
// end, the summaries of `ranks` ranks.
int64_t PassingBytes(const zero::Plan& parameters, int ranks);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_RANK_MEMORY_H_
