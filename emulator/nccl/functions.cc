// NCCL's functions but those that enqueue.

#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/emulator/nccl/communicator.h"

namespace brigade::emulator {
namespace {

// How long ncclCommDestroy waits for kernels before it is taken for one that never ends.
constexpr absl::Duration kPatience = absl::Seconds(10);

// Its handle is never another communicator's.
void End(NcclComm comm) {
  const device::MutexLock lock(NcclState::Get().mutex);
  NcclState::Get().live.erase(comm);
  std::erase_if(NcclState::Get().registered,
                [&](const auto& each) { return each.first.first == comm; });
  comm->state = comm->kernels = nullptr;
  comm->split.reset();
}

// What a communicator is of, and of which it holds no kernels from now on; null if another thread
// has ended it.
std::shared_ptr<RankState> LetGo(NcclComm comm) {
  const device::MutexLock lock(NcclState::Get().mutex);
  comm->kernels = nullptr;
  return comm->state;
}

// Other ranks no longer reach this one's arrays when it returns.
void AbortKernels(RankState& rank) {
  rank.aborted = true;
  rank.order->Abort();
  if (rank.group != nullptr) rank.group->Withdraw(rank.rank);
}

// NCCL waits without a limit.
bool AwaitKernels(const RankState& rank) {
  const std::atomic<bool>& ended = rank.kernels_ended;
  const device::SteadyTime deadline = device::SteadyTime::Now() + kPatience;
  while (!ended && device::SteadyTime::Now() < deadline) absl::SleepFor(absl::Microseconds(100));
  return ended;
}

int RegistrationsOf(NcclComm comm) {
  const device::MutexLock lock(NcclState::Get().mutex);
  int found = 0;
  for (const auto& [handle, registration] : NcclState::Get().registered) {
    if (handle.first == comm) ++found;
  }
  return found;
}

// What is wrong with a configuration, or nothing.
std::string ConfigError(const NcclConfig* config) {
  if (config == nullptr) return "";
  if (config->magic != NcclConfig().magic ||
      config->size < offsetof(NcclConfig, cga_cluster_size)) {
    return "with a configuration that was not initialised";
  }
  // Also where it is not set.
  return config->blocking == 0 ? "" : "for a blocking communicator: not supported here";
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

NcclResult Join(NcclComm comm, NcclEntry& entry, const NcclUniqueId& id, int ranks) {
  absl::Status joined;
  {
    const device::MutexLock lock(NcclState::Get().mutex);
    const std::string name(id.internal, strnlen(id.internal, sizeof(id.internal)));
    joined = JoinGroup(name, ranks, *comm->state);
  }
  if (joined.ok()) return NcclResult::kInProgress;
  if (absl::IsInvalidArgument(joined)) {
    return entry.Refuse(NcclResult::kInvalidArgument, joined.message());
  }
  NcclState::Get().SetLastError(joined.ToString());
  return NcclResult::kSystemError;
}

NcclResult CommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                              NcclConfig* config) {
  constexpr const char* kFunction = "ncclCommInitRankConfig";
  // Without a configuration it would be blocking.
  std::string wrong =
      config == nullptr ? "for a blocking communicator: not supported here" : ConfigError(config);
  if (comm == nullptr) wrong = "into no communicator";
  if (rank < 0 || rank >= ranks) wrong = absl::StrCat("with rank ", rank, " of ", ranks);
  if (id.internal[0] == 0) wrong = "with an id that ncclGetUniqueId has not made";
  if (!wrong.empty()) return NcclEntry(kFunction).Refuse(NcclResult::kInvalidArgument, wrong);
  {
    const auto state = CreateRank(rank);
    const device::MutexLock lock(NcclState::Get().mutex);
    *comm = CreateComm(state);
  }
  NcclEntry entry(kFunction, *comm, NcclEntry::Needs::kLive);
  const NcclResult result = entry.has_error() ? entry.result() : Join(*comm, entry, id, ranks);
  if (result != NcclResult::kInProgress) End(std::exchange(*comm, nullptr));
  return result;
}

// Succeeds while the split is in progress, as NCCL does: `child` is filled when the parent is ready
// again.
NcclResult CommSplit(NcclComm comm, int color, int key, NcclComm* child, NcclConfig* config) {
  NcclEntry entry("ncclCommSplit", comm);
  if (entry.has_error()) return entry.result();
  if (comm->finalized && !comm->revoked) {
    return entry.Refuse(NcclResult::kInvalidUsage, "after ncclCommFinalize");
  }
  if (child == nullptr) return entry.Refuse(NcclResult::kInvalidArgument, "into no communicator");
  // Without one the child has its parent's.
  if (const std::string wrong = ConfigError(config); !wrong.empty()) {
    return entry.Refuse(NcclResult::kInvalidArgument, wrong);
  }
  *child = nullptr;
  comm->split = {comm->splits++, color, nullptr, child};
  comm->polls_left = 2;
  comm->state->group->PostSplit(comm->state->rank, comm->split->number, color, key);
  return NcclResult::kSuccess;
}

NcclResult CommFinalize(NcclComm comm) {
  if (comm == nullptr) return NcclResult::kSuccess;
  NcclEntry entry("ncclCommFinalize", comm);
  if (!entry.failed() && comm->finalized) {
    entry.Refuse(NcclResult::kInvalidArgument,
                 comm->revoked ? "after ncclCommRevoke" : "a second time");
  }
  if (entry.failed()) return entry.KeepError();
  comm->finalized = comm->awaits_kernels = true;
  comm->kernels = nullptr;
  comm->polls_left = 2;
  return NcclResult::kInProgress;
}

// Also if a fault has been injected.
NcclResult CommDestroy(NcclComm comm) {
  if (comm == nullptr) return NcclResult::kSuccess;
  NcclEntry entry("ncclCommDestroy", comm);
  if (entry.is_gone() || comm->InProgress() || comm->Error() != NcclResult::kSuccess) {
    return entry.result();
  }
  const NcclResult result = entry.result();
  if (const int left = RegistrationsOf(comm); left > 0) {
    entry.Refuse(result, absl::StrCat("with ", left, " registrations"));
  }
  const std::shared_ptr<RankState> rank = LetGo(comm);
  if (rank == nullptr) return result;
  if (!AwaitKernels(*rank)) {
    entry.Refuse(result, "waits for kernels that do not end, or for graphs that hold them");
    AbortKernels(*rank);
  }
  End(comm);
  return result;
}

NcclResult CommAbort(NcclComm comm) {
  if (comm == nullptr) return NcclResult::kSuccess;
  NcclEntry entry("ncclCommAbort", comm, NcclEntry::Needs::kLive);
  if (entry.is_gone()) return entry.result();
  const std::shared_ptr<RankState> rank = LetGo(comm);
  if (rank == nullptr) return entry.result();
  AbortKernels(*rank);
  End(comm);
  return entry.result();
}

// What was in progress is given up.
NcclResult CommRevoke(NcclComm comm, int flags) {
  if (comm == nullptr) return NcclResult::kSuccess;
  NcclEntry entry("ncclCommRevoke", comm, NcclEntry::Needs::kLive);
  if (entry.failed()) return entry.result();
  if (flags != 0) {
    return entry.Refuse(NcclResult::kInvalidArgument, absl::StrCat("with flags ", flags));
  }
  if (comm->finalized) {
    return entry.Refuse(NcclResult::kInvalidArgument,
                        comm->revoked ? "a second time" : "after ncclCommFinalize");
  }
  AbortKernels(*comm->state);
  comm->revoked = comm->finalized = comm->awaits_kernels = true;
  comm->kernels = nullptr;
  comm->hangs = comm->is_deferred = false;
  comm->polls_left = 0;
  comm->split.reset();
  comm->error_at = std::chrono::steady_clock::time_point::max();
  return NcclResult::kInProgress;
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
  auto& registration = NcclState::Get().registered[{comm, data}];
  registration = {comm->state->rank, static_cast<int64_t>(bytes), registration.times + 1};
  *handle = data;
  return NcclResult::kSuccess;
}

NcclResult CommDeregister(NcclComm comm, void* handle) {
  NcclEntry entry("ncclCommDeregister", comm, NcclEntry::Needs::kLive);
  if (entry.failed() || handle == nullptr) return entry.result();
  {
    const device::MutexLock lock(NcclState::Get().mutex);
    auto& registered = NcclState::Get().registered;
    const auto found = registered.find({comm, handle});
    if (found != registered.end()) {
      if (--found->second.times == 0) registered.erase(found);
      return NcclResult::kSuccess;
    }
  }
  return entry.Refuse(NcclResult::kInvalidUsage, "of what is not registered");
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
