#include "brigade/zero/shard_groups.h"

#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"

namespace brigade::zero {

absl::Status CheckShardRanks(int shard_ranks, int ranks) {
  if (shard_ranks >= 1 && ranks % shard_ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ZeRO: groups of shard_ranks ", shard_ranks,
                                                 " do not divide ", ranks,
                                                 " ranks that have the same weights"));
}

absl::StatusOr<ShardGroups> ShardGroups::Create(collectives::Communicator& ranks, int shard_ranks) {
  BRIGADE_RETURN_IF_ERROR(
      collectives::AgreeOnLines({absl::StrCat("shard_ranks ", shard_ranks)}, ranks));
  BRIGADE_RETURN_IF_ERROR(CheckShardRanks(shard_ranks, ranks.size()));
  ShardGroups groups;
  BRIGADE_ASSIGN_OR_RETURN(groups.shards, ranks.Split(ranks.rank() / shard_ranks, 0));
  BRIGADE_ASSIGN_OR_RETURN(groups.between, ranks.Split(ranks.rank() % shard_ranks, 0));
  return groups;
}

}  // namespace brigade::zero
