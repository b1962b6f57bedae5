// EmulatedNccl's functions that enqueue, and what finds out whether they have.

#include <utility>

#include "brigade/emulator/nccl/communicator.h"

namespace brigade::emulator {
namespace {

using Clock = std::chrono::steady_clock;

NcclResult EnqueueNow(const ncclComm& comm, const NcclWork& work) {
  const absl::Status enqueued = NcclState::Get().streams.load()->Enqueue(
      work.stream, {comm.state, work.collective}, work.transfers);
  return enqueued.ok() ? NcclResult::kSuccess : NcclResult::kUnhandledCudaError;
}

NcclResult Launch(ncclComm& comm, NcclWork& work) {
  if (++comm.launches % 3 != 0) return EnqueueNow(comm, work);
  std::swap(comm.deferred, work);
  comm.is_deferred = true;
  comm.polls_left = 2;
  return NcclResult::kInProgress;
}

thread_local int group_depth = 0;
thread_local NcclComm group_comm = nullptr;
thread_local NcclResult group_result = NcclResult::kSuccess;  // the worst of its calls

NcclResult GroupStart() {
  NcclEntry entry("ncclGroupStart");
  if (entry.failed()) return entry.result();
  ++group_depth;
  group_comm = nullptr;
  group_result = NcclResult::kSuccess;
  return NcclResult::kSuccess;
}

NcclResult GroupEnd() {
  const NcclComm comm = std::exchange(group_comm, nullptr);
  --group_depth;
  if (comm == nullptr) return NcclEntry("ncclGroupEnd").result();
  NcclEntry entry("ncclGroupEnd", comm, /*may_be_in_progress=*/true);
  if (entry.failed()) return entry.result();
  if (group_result != NcclResult::kSuccess) return group_result;
  return Launch(*comm, comm->grouped);
}

NcclResult Transfer(const char* function, TransferPart transfer, NcclComm comm, NcclStream stream) {
  NcclEntry entry(function, comm);
  if (entry.failed()) return group_result = entry.result();
  NcclWork& work = comm->grouped;
  if (group_comm == nullptr) work.transfers.clear();
  work.stream = stream;
  work.collective.reset();
  if (transfer.bytes > 0) work.transfers.push_back(transfer);
  if (group_depth == 0) return Launch(*comm, work);
  group_comm = comm;
  return NcclResult::kSuccess;
}

NcclResult Send(const void* input, size_t count, NcclType type, int peer, NcclComm comm,
                NcclStream stream) {
  return Transfer("ncclSend", {true, const_cast<void*>(input), count * BytesOf(type), peer}, comm,
                  stream);
}

NcclResult Receive(void* output, size_t count, NcclType type, int peer, NcclComm comm,
                   NcclStream stream) {
  return Transfer("ncclRecv", {false, output, count * BytesOf(type), peer}, comm, stream);
}

NcclResult Collective(const char* function, const CollectivePart& collective, NcclComm comm,
                      NcclStream stream) {
  NcclEntry entry(function, comm);
  if (entry.failed()) return entry.result();
  if (collective.count == 0) return NcclResult::kSuccess;  // as NCCL does
  NcclWork& work = comm->grouped;
  work.stream = stream;
  work.collective = collective;
  work.transfers.clear();
  return Launch(*comm, work);
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

NcclResult GetAsyncError(NcclComm comm, NcclResult* error) {
  NcclEntry entry("ncclCommGetAsyncError", comm, /*may_be_in_progress=*/true);
  if (entry.failed()) return entry.result();
  *error = NcclResult::kInProgress;
  if (Clock::now() >= comm->error_at) {
    *error = comm->error;
    return NcclResult::kSuccess;
  }
  if (comm->hangs) return NcclResult::kSuccess;
  if (!comm->state->group->is_complete()) return NcclResult::kSuccess;
  comm->initialised = true;
  if (comm->split.has_value()) {
    const device::MutexLock lock(NcclState::Get().mutex);
    const absl::StatusOr<bool> is_done = Advance(*comm);
    if (!is_done.ok()) return SystemError(is_done.status());
    if (!*is_done) return NcclResult::kSuccess;
  }
  if (comm->polls_left > 0 && --comm->polls_left > 0) return NcclResult::kSuccess;
  *error = NcclResult::kSuccess;
  if (comm->split.has_value()) {
    const device::MutexLock lock(NcclState::Get().mutex);
    if (comm->split->state != nullptr) *comm->split->child = CreateComm(comm->split->state);
    comm->split.reset();
  }
  if (std::exchange(comm->is_deferred, false)) *error = EnqueueNow(*comm, comm->deferred);
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
