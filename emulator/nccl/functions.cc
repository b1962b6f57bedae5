// NCCL's functions but those that enqueue.

#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "brigade/emulator/nccl/communicator.h"

namespace brigade::emulator {
namespace {

bool IsError(const NcclEntry& entry) {
  return entry.failed() && entry.result() != NcclResult::kInProgress;
}

void DeleteComm(NcclComm comm) {
  {
    const device::MutexLock lock(NcclState::Get().mutex);
    if (NcclState::Get().live.erase(comm) == 0) return;
    std::erase_if(NcclState::Get().registered,
                  [&](const auto& each) { return each.second.comm == comm; });
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
  const device::MutexLock lock(NcclState::Get().mutex);
  std::memset(id, 0, sizeof(*id));
  const std::string name = absl::StrCat("/brigade-nccl-", getpid(), "-", ++NcclState::Get().ids,
                                        "-", absl::GetCurrentTimeNanos());
  std::memcpy(id->internal, name.data(), name.size());
  return NcclResult::kSuccess;
}

NcclResult CommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                              NcclConfig* config) {
  // Without a configuration it would be blocking.
  if (config == nullptr || config->blocking != 0 || rank < 0 || rank >= ranks ||
      id.internal[0] == 0) {
    return NcclResult::kInvalidArgument;
  }
  {
    const device::MutexLock lock(NcclState::Get().mutex);
    *comm = CreateComm(std::make_shared<RankState>());
  }
  (*comm)->state->rank = rank;
  NcclEntry entry("ncclCommInitRankConfig", *comm, /*may_be_in_progress=*/true);
  NcclResult result = entry.result();
  if (!IsError(entry)) {
    const device::MutexLock lock(NcclState::Get().mutex);
    const absl::Status joined = JoinGroup(id.internal, ranks, *(*comm)->state);
    result = joined.ok() ? NcclResult::kInProgress : SystemError(joined);
  }
  if (result != NcclResult::kInProgress) {
    entry.Leave();
    DeleteComm(std::exchange(*comm, nullptr));
  }
  return result;
}

// Succeeds while the split is in progress, as NCCL does: `child` is filled when the parent is ready
// again.
NcclResult CommSplit(NcclComm comm, int color, int key, NcclComm* child, NcclConfig*) {
  NcclEntry entry("ncclCommSplit", comm);
  if (IsError(entry)) return entry.result();
  *child = nullptr;
  comm->split = {comm->splits++, color, nullptr, child};
  comm->polls_left = 2;
  comm->state->group->PostSplit(comm->state->rank, comm->split->number, color, key);
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
  const device::MutexLock lock(NcclState::Get().mutex);
  NcclState::Get().registered[*handle = data] = {comm, comm->state->rank,
                                                 static_cast<int64_t>(bytes)};
  return NcclResult::kSuccess;
}

NcclResult CommDeregister(NcclComm comm, void* handle) {
  NcclEntry entry("ncclCommDeregister", comm);
  if (entry.failed()) return entry.result();
  const device::MutexLock lock(NcclState::Get().mutex);
  NcclState::Get().registered.erase(handle);
  return entry.result();
}

}  // namespace

NcclApi NcclFunctions(NcclStreams& streams) {
  NcclState::Get().streams = &streams;
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
  AddEnqueueCalls(api);
  return api;
}

}  // namespace brigade::emulator
