#include "brigade/zero/internal/communicator_check.h"

#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/compressed/node_groups.h"
#include "brigade/device/status_macros.h"

namespace brigade::zero::internal {
namespace {

absl::Status CheckWorld(const ZeroOptions& options, const collectives::Communicator& group,
                        const OuterGroups& outer) {
  const collectives::Communicator& world = outer.world == nullptr ? group : *outer.world;
  const int shard_groups = outer.between == nullptr ? 1 : outer.between->size();
  if (options.shard_ranks > 0 && group.size() != options.shard_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("ZeRO: shard_ranks is ", options.shard_ranks,
                                                   ", but the group that shares a state has ",
                                                   group.size(), " ranks"));
  }
  if (options.shard_ranks == 0 && shard_groups > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ZeRO: shard_ranks is 0, but OuterGroups::between has ", shard_groups,
                     " ranks, one of each group that shares a state"));
  }
  if (int64_t{group.size()} * shard_groups * options.model_ranks == world.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("ZeRO: model_ranks is ", options.model_ranks, ", but ",
                   shard_groups > 1 ? absl::StrCat(shard_groups, " times ") : "", "groups of ",
                   group.size(), " ranks are parts of a world of ", world.size()));
}

absl::Status CheckNear(const ZeroOptions& options, const collectives::Communicator& group,
                       const OuterGroups& outer) {
  const int near = outer.near == nullptr ? 0 : outer.near->size();
  if (near != options.hpz_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("ZeRO: hpz_ranks is ", options.hpz_ranks,
                                                   ", but OuterGroups::near has ", near, " ranks"));
  }
  if (near == 0 || group.size() % near == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ZeRO: hpz_ranks is ", options.hpz_ranks,
                                                 ", which does not divide the ", group.size(),
                                                 " ranks that share a state"));
}

absl::Status CheckNodes(const ZeroOptions& options, const collectives::Communicator& group,
                        const OuterGroups& outer) {
  if (options.node_ranks > 0 && group.size() % options.node_ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("ZeRO: node_ranks is ", options.node_ranks,
                                                   ", which does not divide the ", group.size(),
                                                   " ranks that share a state"));
  }
  const bool has_two_hops = options.node_ranks > 1 && options.node_ranks < group.size();
  const int node = outer.node == nullptr ? 0 : outer.node->size();
  if (node != options.node_ranks && (has_two_hops || node != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("ZeRO: node_ranks is ", options.node_ranks,
                                                   ", but OuterGroups::node has ", node, " ranks"));
  }
  return collectives::CheckNodes("ZeRO", group, {outer.node, outer.nodes});
}

}  // namespace

absl::Status CheckCommunicators(const ZeroOptions& options, const collectives::Communicator& group,
                                const OuterGroups& outer) {
  BRIGADE_RETURN_IF_ERROR(CheckWorld(options, group, outer));
  BRIGADE_RETURN_IF_ERROR(CheckNear(options, group, outer));
  return CheckNodes(options, group, outer);
}

absl::Status AgreeOnNear(const collectives::Communicator& group, int shard_group,
                         collectives::Communicator& near) {
  return collectives::AgreeOnLines({absl::StrCat("ranks from ", group.rank() - near.rank(),
                                                 " on of group ", shard_group, " near it")},
                                   near);
}

}  // namespace brigade::zero::internal
