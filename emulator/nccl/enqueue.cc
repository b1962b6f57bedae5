// EmulatedNccl's functions that enqueue, alone or in groups, and what finds out whether they have.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/emulator/nccl/accumulate.h"
#include "brigade/emulator/nccl/communicator.h"

namespace brigade::emulator {
namespace {

using Clock = std::chrono::steady_clock;

// What this thread has begun. The calls themselves lie in their communicators.
struct Group {
  int depth = 0;
  std::vector<NcclComm> comms;
  // Of the last call that failed, as in NCCL.
  NcclResult error = NcclResult::kSuccess;
};
thread_local Group group;

NcclResult EnqueueNow(ncclComm& comm, const NcclWork& work) {
  NcclStreams& streams = *NcclState::Get().streams;
  absl::Status enqueued;
  for (const CollectivePart& collective : work.collectives) {
    if (enqueued.ok()) enqueued = streams.Enqueue(work.stream, {comm.kernels, collective}, {});
  }
  if (enqueued.ok() && !work.transfers.empty()) {
    enqueued = streams.Enqueue(work.stream, {comm.kernels, std::nullopt}, work.transfers);
  }
  if (enqueued.ok()) return NcclResult::kSuccess;
  NcclState::Get().SetLastError(enqueued.ToString());
  comm.Keep(NcclResult::kUnhandledCudaError);
  return NcclResult::kUnhandledCudaError;
}

// Enqueues what lies in the communicator, or puts it off.
NcclResult Launch(ncclComm& comm) {
  if (comm.grouped.collectives.empty() && comm.grouped.transfers.empty()) {
    return NcclResult::kSuccess;
  }
  NcclResult result = NcclResult::kInProgress;
  if (++comm.launches % 3 != 0) {
    result = EnqueueNow(comm, comm.grouped);
  } else {
    std::swap(comm.deferred, comm.grouped);
    comm.is_deferred = true;
    comm.polls_left = 2;
  }
  comm.grouped.Clear();
  return result;
}

// What the communicator is past, so that nothing is enqueued any more, or nothing.
const char* EndOf(const ncclComm& comm) {
  if (comm.revoked) return "after ncclCommRevoke";
  return comm.finalized ? "after ncclCommFinalize" : nullptr;
}

// A call that enqueues: add(work) adds it to the communicator's. `why_not` says what is wrong with
// its arguments, or is empty.
template <typename WhyNot, typename Add>
NcclResult Call(const char* function, NcclComm comm, NcclStream stream, const WhyNot& why_not,
                const Add& add) {
  NcclEntry entry(function, comm);
  if (!entry.failed()) {
    const std::string wrong = why_not(comm->state->group->size());
    if (const char* const end = EndOf(*comm); end != nullptr) {
      entry.Refuse(NcclResult::kInvalidUsage, end);
    } else if (!wrong.empty()) {
      entry.Refuse(NcclResult::kInvalidArgument, wrong);
    }
  }
  NcclWork* const work = entry.is_gone() ? nullptr : &comm->grouped;
  const bool is_first = work == nullptr || std::find(group.comms.begin(), group.comms.end(),
                                                     comm) == group.comms.end();
  if (!entry.failed() && !is_first && work->stream != stream) {
    entry.Refuse(NcclResult::kInvalidUsage,
                 "in a group with another stream of the communicator: not supported here");
  }
  if (entry.failed()) {
    if (group.depth > 0) group.error = entry.result();
    return entry.KeepError();
  }
  work->stream = stream;
  add(*work);
  if (group.depth == 0) return Launch(*comm);
  if (is_first) group.comms.push_back(comm);
  return NcclResult::kSuccess;
}

std::string TypeError(NcclType type) {
  if (BytesOf(type) > 0) return "";
  return absl::StrCat("with type ", static_cast<int>(type), ": not NCCL's, or not supported here");
}

std::string RankError(absl::string_view what, int rank, int size) {
  if (rank >= 0 && rank < size) return "";
  return absl::StrCat("with ", what, " ", rank, " of ", size, " ranks");
}

NcclResult GroupStart() {
  NcclEntry entry("ncclGroupStart");
  if (!entry.failed()) ++group.depth;
  return entry.result();
}

// The calls of one communicator.
NcclResult EndGroup(NcclComm comm) {
  NcclEntry entry("ncclGroupEnd", comm, NcclEntry::Needs::kLive);
  if (entry.is_gone()) return entry.result();
  if (const char* const end = EndOf(*comm); end != nullptr && !entry.failed()) {
    entry.Refuse(NcclResult::kInvalidUsage, end);
  }
  if (entry.failed() || group.error != NcclResult::kSuccess) {
    comm->grouped.Clear();
    return entry.KeepError();
  }
  return Launch(*comm);
}

NcclResult GroupEnd() {
  if (group.depth == 0) {
    return NcclEntry("ncclGroupEnd").Refuse(NcclResult::kInvalidUsage, "without ncclGroupStart");
  }
  if (--group.depth > 0) {
    const NcclEntry entry("ncclGroupEnd");
    if (entry.failed()) group.error = entry.result();
    return entry.result();
  }
  NcclResult result = NcclResult::kSuccess;
  if (group.comms.empty()) result = NcclEntry("ncclGroupEnd").result();
  for (const NcclComm comm : group.comms) {
    const NcclResult ended = EndGroup(comm);
    if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) {
      result = ended == NcclResult::kSuccess ? result : ended;
    }
  }
  group.comms.clear();
  const NcclResult error = std::exchange(group.error, NcclResult::kSuccess);
  return error == NcclResult::kSuccess ? result : error;
}

NcclResult Transfer(const char* function, bool sends, void* data, size_t count, NcclType type,
                    int peer, NcclComm comm, NcclStream stream) {
  const auto why_not = [&](int size) {
    const std::string wrong = TypeError(type);
    return wrong.empty() ? RankError("peer", peer, size) : wrong;
  };
  return Call(function, comm, stream, why_not, [&](NcclWork& work) {
    if (count > 0) work.transfers.push_back({sends, data, count * BytesOf(type), peer});
  });
}

NcclResult Send(const void* input, size_t count, NcclType type, int peer, NcclComm comm,
                NcclStream stream) {
  return Transfer("ncclSend", true, const_cast<void*>(input), count, type, peer, comm, stream);
}

NcclResult Receive(void* output, size_t count, NcclType type, int peer, NcclComm comm,
                   NcclStream stream) {
  return Transfer("ncclRecv", false, output, count, type, peer, comm, stream);
}

NcclResult Collective(const char* function, const CollectivePart& collective, NcclComm comm,
                      NcclStream stream) {
  const auto why_not = [&](int size) {
    if (std::string wrong = TypeError(collective.type); !wrong.empty()) return wrong;
    if (!HasOp(collective.op)) {
      return absl::StrCat("with operation ", static_cast<int>(collective.op),
                          ": not NCCL's, or not supported here");
    }
    return RankError("root", collective.root, size);
  };
  return Call(function, comm, stream, why_not, [&](NcclWork& work) {
    // As NCCL does.
    if (collective.count > 0) work.collectives.push_back(collective);
  });
}

NcclResult AllReduce(const void* input, void* output, size_t count, NcclType type, NcclOp op,
                     NcclComm comm, NcclStream stream) {
  using Kind = CollectivePart::Kind;
  return Collective("ncclAllReduce", {Kind::kAllReduce, input, output, count, type, op}, comm,
                    stream);
}

NcclResult ReduceScatter(const void* input, void* output, size_t count, NcclType type, NcclOp op,
                         NcclComm comm, NcclStream stream) {
  using Kind = CollectivePart::Kind;
  return Collective("ncclReduceScatter", {Kind::kReduceScatter, input, output, count, type, op},
                    comm, stream);
}

NcclResult AllGather(const void* input, void* output, size_t count, NcclType type, NcclComm comm,
                     NcclStream stream) {
  using Kind = CollectivePart::Kind;
  return Collective("ncclAllGather", {Kind::kAllGather, input, output, count, type}, comm, stream);
}

NcclResult Broadcast(const void* input, void* output, size_t count, NcclType type, int root,
                     NcclComm comm, NcclStream stream) {
  using Kind = CollectivePart::Kind;
  return Collective("ncclBroadcast", {Kind::kBroadcast, input, output, count, type, {}, root}, comm,
                    stream);
}

// Whether the split is done; its error is the communicator's from then on.
bool AdvanceSplit(ncclComm& comm) {
  const device::MutexLock lock(NcclState::Get().mutex);
  // Another thread may have aborted.
  if (!comm.split.has_value()) return false;
  const absl::StatusOr<bool> is_done = Advance(comm);
  if (is_done.ok()) return *is_done;
  NcclState::Get().last_error = is_done.status().ToString();
  comm.Keep(NcclResult::kSystemError);
  return false;
}

// When the communicator is ready: a split's child is there, and ready too; what was put off is
// enqueued.
NcclResult Complete(ncclComm& comm) {
  if (comm.split.has_value()) {
    const device::MutexLock lock(NcclState::Get().mutex);
    if (comm.split->state != nullptr) {
      *comm.split->child = CreateComm(comm.split->state);
      (*comm.split->child)->initialised = true;
    }
    comm.split.reset();
  }
  if (!std::exchange(comm.is_deferred, false)) return NcclResult::kSuccess;
  const NcclResult result = EnqueueNow(comm, comm.deferred);
  comm.deferred.Clear();
  return result;
}

// Null when another thread has aborted the communicator.
std::shared_ptr<RankState> RankOf(const ncclComm& comm) {
  const device::MutexLock lock(NcclState::Get().mutex);
  return comm.state;
}

NcclResult StateOf(ncclComm& comm) {
  constexpr auto kInProgress = NcclResult::kInProgress;
  const std::shared_ptr<RankState> rank = RankOf(comm);
  if (rank == nullptr) return NcclResult::kInvalidArgument;
  if (const NcclResult error = comm.Error(); error != NcclResult::kSuccess) return error;
  if (comm.hangs || !rank->group->is_complete()) return kInProgress;
  comm.initialised = true;
  if (comm.split.has_value() && !AdvanceSplit(comm)) {
    return comm.Error() == NcclResult::kSuccess ? kInProgress : comm.Error();
  }
  if (comm.polls_left > 0 && --comm.polls_left > 0) return kInProgress;
  if (comm.awaits_kernels && !rank->kernels_ended) return kInProgress;
  comm.awaits_kernels = false;
  return Complete(comm);
}

NcclResult GetAsyncError(NcclComm comm, NcclResult* error) {
  NcclEntry entry("ncclCommGetAsyncError", comm, NcclEntry::Needs::kLive);
  if (entry.failed()) return entry.result();
  if (error == nullptr) return entry.Refuse(NcclResult::kInvalidArgument, "into no result");
  *error = StateOf(*comm);
  return NcclResult::kSuccess;
}

}  // namespace

void AddEnqueueCalls(NcclApi& api) {
  api.comm_get_async_error = GetAsyncError;
  api.group_start = GroupStart;
  api.group_end = GroupEnd;
  api.all_reduce = AllReduce;
  api.reduce_scatter = ReduceScatter;
  api.all_gather = AllGather;
  api.broadcast = Broadcast;
  api.send = Send;
  api.receive = Receive;
}

}  // namespace brigade::emulator
