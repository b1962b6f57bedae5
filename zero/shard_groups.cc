#include "brigade/zero/shard_groups.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"

namespace brigade::zero {
namespace {

absl::Status Check(const char* name, int number, int ranks, const char* what) {
  if (number >= 1 && ranks % number == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ZeRO: groups of ", name, " ", number,
                                                 " do not divide ", ranks, " ranks that ", what));
}

}  // namespace

absl::StatusOr<ShardGroups> ShardGroups::Create(collectives::Communicator& ranks, int shard_ranks,
                                                int hpz_ranks, int node_ranks) {
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnLines(
      {absl::StrCat("shard_ranks ", shard_ranks), absl::StrCat("hpz_ranks ", hpz_ranks),
       absl::StrCat("node_ranks ", node_ranks)},
      ranks));
  if (shard_ranks == 0) shard_ranks = ranks.size();
  BRIGADE_RETURN_IF_ERROR(Check("shard_ranks", shard_ranks, ranks.size(), "have the same weights"));
  if (hpz_ranks != 0) {
    BRIGADE_RETURN_IF_ERROR(Check("hpz_ranks", hpz_ranks, shard_ranks, "share a state"));
  }
  if (node_ranks != 0) {
    BRIGADE_RETURN_IF_ERROR(Check("node_ranks", node_ranks, shard_ranks, "share a state"));
  }
  const Colors colors = ColorsOf(ranks.rank(), shard_ranks, hpz_ranks, node_ranks);
  ShardGroups groups;
  BRIGADE_ASSIGN_OR_RETURN(groups.shards, ranks.Split(colors.shards, 0));
  BRIGADE_ASSIGN_OR_RETURN(groups.between, ranks.Split(colors.between, 0));
  if (hpz_ranks != 0) {
    BRIGADE_ASSIGN_OR_RETURN(groups.near, ranks.Split(colors.near, 0));
  }
  if (node_ranks == 0) return groups;
  BRIGADE_ASSIGN_OR_RETURN(groups.node, ranks.Split(colors.node, 0));
  BRIGADE_ASSIGN_OR_RETURN(groups.nodes, ranks.Split(colors.nodes, 0));
  return groups;
}

ShardGroups::Colors ShardGroups::ColorsOf(int rank, int shard_ranks, int hpz_ranks,
                                          int node_ranks) {
  Colors colors = {.shards = rank / shard_ranks, .between = rank % shard_ranks};
  if (hpz_ranks != 0) colors.near = rank / hpz_ranks;
  if (node_ranks != 0) {
    colors.node = rank / node_ranks;
    colors.nodes = colors.shards * node_ranks + rank % node_ranks;
  }
  return colors;
}

}  // namespace brigade::zero
