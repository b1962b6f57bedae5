#include "brigade/tests/collectives/engines/nccl/fake_nccl.h"

#include <algorithm>
#include <cstring>

#include "brigade/tests/collectives/engines/nccl/fake_world.h"

namespace brigade::collectives {
namespace {

bool IsError(const FakeEntry& entry) {
  return entry.failed() && entry.result() != NcclResult::kInProgress;
}

NcclComm CreateComm() {
  FakeWorld& world = FakeWorld::Get();
  std::lock_guard lock(world.mutex);
  return *world.live.insert(new ncclComm).first;
}

void DeleteComm(NcclComm comm) {
  {
    FakeWorld& world = FakeWorld::Get();
    std::lock_guard lock(world.mutex);
    if (world.live.erase(comm) == 0) return;
    std::erase_if(world.registered, [&](const auto& each) { return each.second.comm == comm; });
  }
  delete comm;
}

void AbortKernels(NcclComm comm) {
  comm->state->aborted = true;
  if (comm->state->group != nullptr) comm->state->group->Wake();
}

NcclResult GetUniqueId(NcclUniqueId* id) {
  FakeEntry entry("ncclGetUniqueId");
  if (entry.failed()) return entry.result();
  FakeWorld& world = FakeWorld::Get();
  std::lock_guard lock(world.mutex);
  std::memset(id, 0, sizeof(*id));
  std::string name = "fake " + std::to_string(++world.ids);
  std::memcpy(id->internal, name.data(), name.size());
  return NcclResult::kSuccess;
}

NcclResult CommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                              NcclConfig* config) {
  if (config->blocking != 0 || rank < 0 || rank >= ranks || id.internal[0] == 0) {
    return NcclResult::kInvalidArgument;
  }
  *comm = CreateComm();
  (*comm)->state->rank = rank;
  FakeEntry entry("ncclCommInitRankConfig", *comm, /*may_be_in_progress=*/true);
  if (IsError(entry)) {
    entry.Leave();
    DeleteComm(std::exchange(*comm, nullptr));
    return entry.result();
  }
  FakeWorld& world = FakeWorld::Get();
  std::lock_guard lock(world.mutex);
  std::shared_ptr<FakeGroup>& group = world.groups[id.internal];
  if (group == nullptr) group = std::make_shared<FakeGroup>(ranks);
  (*comm)->state->group = group;
  ++group->joined;
  return NcclResult::kInProgress;
}

// Makes the groups of a split to which all ranks have come. The world's mutex is held.
void Resolve(FakeSplit& split) {
  std::map<int, std::vector<std::pair<std::pair<int, int>, FakeRank*>>> groups;  // by color
  for (const auto& [rank, post] : split.posts) {
    if (post.color >= 0) groups[post.color].push_back({{post.key, rank}, post.child.get()});
  }
  for (auto& [color, members] : groups) {
    std::sort(members.begin(), members.end());
    auto group = std::make_shared<FakeGroup>(static_cast<int>(members.size()));
    group->joined = static_cast<int>(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      members[i].second->rank = static_cast<int>(i);
      members[i].second->group = group;
    }
  }
  split.resolved = true;
}

NcclResult CommSplit(NcclComm comm, int color, int key, NcclComm* child, NcclConfig*) {
  FakeEntry entry("ncclCommSplit", comm);
  if (IsError(entry)) return entry.result();
  *child = color < 0 ? nullptr : CreateComm();
  FakeWorld& world = FakeWorld::Get();
  std::lock_guard lock(world.mutex);
  auto& splits = world.splits[comm->state->group];
  if (splits.empty() || splits.back()->posts.count(comm->state->rank) != 0) {
    splits.push_back(std::make_unique<FakeSplit>());
  }
  FakeSplit& split = *splits.back();
  split.posts[comm->state->rank] = {color, key, *child == nullptr ? nullptr : (*child)->state};
  comm->splitting = &split;
  if (static_cast<int>(split.posts.size()) == comm->state->group->size()) Resolve(split);
  return NcclResult::kInProgress;
}

NcclResult CommFinalize(NcclComm comm) {
  FakeEntry entry("ncclCommFinalize", comm);
  return entry.result();
}

NcclResult CommDestroy(NcclComm comm) {
  FakeEntry entry("ncclCommDestroy", comm);
  if (entry.is_gone()) return entry.result();
  entry.Leave();
  DeleteComm(comm);
  return entry.result();
}

NcclResult CommAbort(NcclComm comm) {
  FakeEntry entry("ncclCommAbort", comm, /*may_be_in_progress=*/true);
  if (entry.is_gone()) return entry.result();
  AbortKernels(comm);
  entry.Leave();
  DeleteComm(comm);
  return entry.result();
}

NcclResult CommRevoke(NcclComm comm, int) {
  FakeEntry entry("ncclCommRevoke", comm, /*may_be_in_progress=*/true);
  if (entry.failed()) return entry.result();
  AbortKernels(comm);
  return NcclResult::kSuccess;
}

NcclResult CommCount(NcclComm comm, int* count) {
  FakeEntry entry("ncclCommCount", comm);
  if (!entry.failed()) *count = comm->state->group->size();
  return entry.result();
}

NcclResult CommUserRank(NcclComm comm, int* rank) {
  FakeEntry entry("ncclCommUserRank", comm);
  if (!entry.failed()) *rank = comm->state->rank;
  return entry.result();
}

NcclResult CommRegister(NcclComm comm, void* data, size_t bytes, void** handle) {
  FakeEntry entry("ncclCommRegister", comm);
  if (entry.failed()) return entry.result();
  FakeWorld& world = FakeWorld::Get();
  std::lock_guard lock(world.mutex);
  world.registered[*handle = data] = {comm, comm->state->rank, static_cast<int64_t>(bytes)};
  return NcclResult::kSuccess;
}

NcclResult CommDeregister(NcclComm comm, void* handle) {
  FakeEntry entry("ncclCommDeregister", comm);
  FakeWorld& world = FakeWorld::Get();
  std::lock_guard lock(world.mutex);
  world.registered.erase(handle);
  return entry.result();
}

}  // namespace

NcclApi FakeNccl::Api() {
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
  api.is_capturing = [](NcclStream) -> bool { return FakeWorld::Get().capturing; };
  // The stand-in takes the device::Stream itself, and declares its reads and writes there.
  api.supports = [](device::DeviceKind kind) { return kind == device::DeviceKind::kCpu; };
  api.launch = [](device::Stream& stream, const device::Operation&,
                  absl::FunctionRef<absl::Status(NcclStream stream)> call) {
    return call(reinterpret_cast<NcclStream>(&stream));
  };
  AddFakeCalls(api);
  return api;
}

}  // namespace brigade::collectives
