#include "brigade/emulator/nccl/emulated_nccl.h"

#include <algorithm>
#include <cstring>

#include "brigade/emulator/nccl/communicator.h"

namespace brigade::emulator {
namespace {

bool IsError(const NcclEntry& entry) {
  return entry.failed() && entry.result() != NcclResult::kInProgress;
}

void DeleteComm(NcclComm comm) {
  {
    NcclState& nccl = NcclState::Get();
    std::lock_guard lock(nccl.mutex);
    if (nccl.live.erase(comm) == 0) return;
    std::erase_if(nccl.registered, [&](const auto& each) { return each.second.comm == comm; });
  }
  delete comm;
}

void AbortKernels(NcclComm comm) {
  comm->state->aborted = true;
  if (comm->state->group != nullptr) comm->state->group->Wake();
}

NcclResult GetUniqueId(NcclUniqueId* id) {
  NcclEntry entry("ncclGetUniqueId");
  if (entry.failed()) return entry.result();
  NcclState& nccl = NcclState::Get();
  std::lock_guard lock(nccl.mutex);
  std::memset(id, 0, sizeof(*id));
  std::string name = "fake " + std::to_string(++nccl.ids);
  std::memcpy(id->internal, name.data(), name.size());
  return NcclResult::kSuccess;
}

NcclResult CommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                              NcclConfig* config) {
  if (config->blocking != 0 || rank < 0 || rank >= ranks || id.internal[0] == 0) {
    return NcclResult::kInvalidArgument;
  }
  {
    const std::lock_guard lock(NcclState::Get().mutex);
    *comm = CreateComm(std::make_shared<RankState>());
  }
  (*comm)->state->rank = rank;
  NcclEntry entry("ncclCommInitRankConfig", *comm, /*may_be_in_progress=*/true);
  if (IsError(entry)) {
    entry.Leave();
    DeleteComm(std::exchange(*comm, nullptr));
    return entry.result();
  }
  NcclState& nccl = NcclState::Get();
  std::lock_guard lock(nccl.mutex);
  std::shared_ptr<RankGroup>& group = nccl.groups[id.internal];
  if (group == nullptr) group = std::make_shared<RankGroup>(ranks);
  (*comm)->state->group = group;
  ++group->joined;
  return NcclResult::kInProgress;
}

// Makes the groups of a split to which all ranks have come. NcclState::mutex is held.
void Resolve(Split& split) {
  std::map<int, std::vector<std::pair<std::pair<int, int>, RankState*>>> groups;  // by color
  for (const auto& [rank, post] : split.posts) {
    if (post.color >= 0) groups[post.color].push_back({{post.key, rank}, post.child.get()});
  }
  for (auto& [color, members] : groups) {
    std::sort(members.begin(), members.end());
    auto group = std::make_shared<RankGroup>(static_cast<int>(members.size()));
    group->joined = static_cast<int>(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      members[i].second->rank = static_cast<int>(i);
      members[i].second->group = group;
    }
  }
  split.resolved = true;
}

// Succeeds while the split is in progress, as NCCL does: `child` is filled when the parent is ready
// again.
NcclResult CommSplit(NcclComm comm, int color, int key, NcclComm* child, NcclConfig*) {
  NcclEntry entry("ncclCommSplit", comm);
  if (IsError(entry)) return entry.result();
  *child = nullptr;
  NcclState& nccl = NcclState::Get();
  std::lock_guard lock(nccl.mutex);
  auto& splits = nccl.splits[comm->state->group];
  if (splits.empty() || splits.back()->posts.count(comm->state->rank) != 0) {
    splits.push_back(std::make_unique<Split>());
  }
  Split& split = *splits.back();
  comm->child = child;
  comm->child_state = color < 0 ? nullptr : std::make_shared<RankState>();
  comm->splitting = &split;
  comm->polls_left = 2;
  split.posts[comm->state->rank] = {color, key, comm->child_state};
  if (static_cast<int>(split.posts.size()) == comm->state->group->size()) Resolve(split);
  return NcclResult::kSuccess;
}

NcclResult CommFinalize(NcclComm comm) {
  NcclEntry entry("ncclCommFinalize", comm);
  return entry.result();
}

NcclResult CommDestroy(NcclComm comm) {
  if (comm == nullptr) return NcclResult::kSuccess;
  NcclEntry entry("ncclCommDestroy", comm);
  if (entry.is_gone()) return entry.result();
  entry.Leave();
  DeleteComm(comm);
  return entry.result();
}

NcclResult CommAbort(NcclComm comm) {
  if (comm == nullptr) return NcclResult::kSuccess;
  NcclEntry entry("ncclCommAbort", comm, /*may_be_in_progress=*/true);
  if (entry.is_gone()) return entry.result();
  AbortKernels(comm);
  entry.Leave();
  DeleteComm(comm);
  return entry.result();
}

NcclResult CommRevoke(NcclComm comm, int) {
  NcclEntry entry("ncclCommRevoke", comm, /*may_be_in_progress=*/true);
  if (entry.failed()) return entry.result();
  AbortKernels(comm);
  return NcclResult::kSuccess;
}

NcclResult CommCount(NcclComm comm, int* count) {
  NcclEntry entry("ncclCommCount", comm);
  if (!entry.failed()) *count = comm->state->group->size();
  return entry.result();
}

NcclResult CommUserRank(NcclComm comm, int* rank) {
  NcclEntry entry("ncclCommUserRank", comm);
  if (!entry.failed()) *rank = comm->state->rank;
  return entry.result();
}

NcclResult CommRegister(NcclComm comm, void* data, size_t bytes, void** handle) {
  NcclEntry entry("ncclCommRegister", comm);
  if (entry.failed()) return entry.result();
  NcclState& nccl = NcclState::Get();
  std::lock_guard lock(nccl.mutex);
  nccl.registered[*handle = data] = {comm, comm->state->rank, static_cast<int64_t>(bytes)};
  return NcclResult::kSuccess;
}

NcclResult CommDeregister(NcclComm comm, void* handle) {
  NcclEntry entry("ncclCommDeregister", comm);
  if (entry.failed()) return entry.result();
  NcclState& nccl = NcclState::Get();
  std::lock_guard lock(nccl.mutex);
  nccl.registered.erase(handle);
  return entry.result();
}

}  // namespace

NcclApi EmulatedNccl::Api() {
  NcclApi api;
  api.get_version = [](int* version) { return *version = 22809, NcclResult::kSuccess; };
  api.get_error_string = [](NcclResult) { return "a fault of the test"; };
  api.get_last_error = [](NcclComm) { return "said last"; };
  api.get_unique_id = GetUniqueId;
  api.comm_init_rank_config = CommInitRankConfig;
  api.comm_split = CommSplit;
  api.comm_count = CommCount;
  api.comm_user_rank = CommUserRank;
  api.comm_finalize = CommFinalize;
  api.comm_destroy = CommDestroy;
  api.comm_abort = CommAbort;
  api.comm_revoke = CommRevoke;
  api.comm_register = CommRegister;
  api.comm_deregister = CommDeregister;
  api.is_capturing = [](NcclStream) -> bool { return NcclState::Get().capturing; };
  // The stand-in takes the device::Stream itself, and declares its reads and writes there.
  api.supports = [](device::DeviceKind kind) { return kind == device::DeviceKind::kCpu; };
  api.launch = [](device::Stream& stream, const device::Operation&,
                  absl::FunctionRef<absl::Status(NcclStream stream)> call) {
    return call(reinterpret_cast<NcclStream>(&stream));
  };
  AddEnqueueCalls(api);
  return api;
}

}  // namespace brigade::emulator
