#include "brigade/train/comparisons.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/parallel/grid.h"
#include "brigade/zero/options.h"

namespace brigade::train {
namespace {

// Those that have the same weights. Replicas differ between two rounds as they should.
int RanksAlike(const Job& job) {
  const parallel::GridShape& grid = job.config.grid;
  return grid.data * grid.context / std::max(job.config.replicas, 1);
}

bool SharesModel(const Job& job) {
  return job.config.grid.tensor > 1 || job.config.grid.pipeline > 1;
}

}  // namespace

absl::Status CheckComparisons(const Job& job) {
  if (VerifyEvery(job) == 0) return absl::OkStatus();
  const zero::ZeroOptions& zero = job.config.zero;
  if (zero.has_local_steps()) {
    return absl::InvalidArgumentError(
        "--verify_replicas: with local steps (0/1 Adam) each rank has weights of its own");
  }
  if (SharesModel(job)) return absl::OkStatus();
  const int ranks = RanksAlike(job);
  const bool has_groups = zero.shard_ranks > 0 && zero.shard_ranks < ranks;
  if (ranks > 1 && (zero.stage < 3 || has_groups)) return absl::OkStatus();
  return NothingAlike(job);
}

absl::Status NothingAlike(const Job& job) {
  std::vector<std::string> reasons;
  if (RanksAlike(job) > 1) {
    reasons.push_back(
        "stage 3 keeps one copy of everything, unless groups have a whole state each "
        "(--shard_ranks)");
  } else if (!SharesModel(job)) {
    reasons.push_back(job.config.replicas > 0 ? "each replica is one rank" : "there is one rank");
  }
  if (SharesModel(job)) {
    reasons.push_back("tensor ranks and stages of the pipeline share no parameter of this model");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--verify_replicas is ", VerifyEvery(job),
                   ", but no rank has what another one has: ", absl::StrJoin(reasons, "; ")));
}

}  // namespace brigade::train
