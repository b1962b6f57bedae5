#include "brigade/train/comparisons.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "brigade/parallel/grid.h"
#include "brigade/zero/options.h"

namespace brigade::train {

absl::Status CheckComparisons(const Job& job) {
  if (VerifyEvery(job) == 0) return absl::OkStatus();
  const zero::ZeroOptions& zero = job.config.zero;
  if (zero.has_local_steps()) {
    return absl::InvalidArgumentError(
        "--verify_replicas: with local steps (0/1 Adam) each rank has weights of its own");
  }
  const parallel::GridShape& grid = job.config.grid;
  if (grid.tensor > 1 || grid.pipeline > 1) return absl::OkStatus();
  // Replicas differ between two rounds as they should.
  const int ranks = grid.data * grid.context / std::max(job.config.replicas, 1);
  const bool has_groups = zero.shard_ranks > 0 && zero.shard_ranks < ranks;
  if (ranks > 1 && (zero.stage < 3 || has_groups)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--verify_replicas is ", VerifyEvery(job), ", but no rank has what another one has: ",
      ranks > 1 ? "stage 3 keeps one copy of everything, unless groups have a whole state each "
                  "(--shard_ranks)"
      : job.config.replicas > 0 ? "each replica is one rank"
                                : "there is one rank"));
}

}  // namespace brigade::train
