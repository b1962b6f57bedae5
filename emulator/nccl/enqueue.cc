// EmulatedNccl's functions that enqueue, and what finds out whether they have.

#include <utility>

#include "brigade/emulator/nccl/communicator.h"

namespace brigade::emulator {
namespace {

using Clock = std::chrono::steady_clock;

NcclResult EnqueueNow(ncclComm& comm, const Work& work) {
  if (NcclState::Get().capturing) return NcclResult::kSuccess;
  const auto state = comm.state;
  absl::Status enqueued;
  if (work.collective.has_value()) {
    const CollectivePart& it = *work.collective;
    const auto bytes = static_cast<int64_t>(it.count * BytesOf(it.type));
    const auto size = static_cast<int64_t>(state->group->size());
    const bool scatters = it.kind == CollectivePart::Kind::kReduceScatter;
    const bool gathers = it.kind == CollectivePart::Kind::kAllGather;
    const uint64_t number = comm.collectives++;
    enqueued =
        work.stream->Enqueue({"nccl collective",
                              {device::Reads(it.input, scatters ? size * bytes : bytes),
                               device::Writes(it.output, gathers ? size * bytes : bytes)}},
                             [state, it, number](device::ThreadPool& pool) {
                               state->group->Run(state->rank, number, it, state->aborted, pool);
                               return absl::OkStatus();
                             });
  } else {
    std::vector<device::Access>& accesses = comm.accesses;
    accesses.clear();
    for (const TransferPart& it : work.transfers) {
      accesses.push_back({it.data, static_cast<int64_t>(it.bytes), !it.sends});
    }
    enqueued = work.stream->Enqueue(
        {"nccl transfers", accesses}, absl::MakeConstSpan(work.transfers),
        [state](absl::Span<const TransferPart> transfers, device::ThreadPool&) {
          state->group->Run(state->rank, transfers, state->aborted);
          return absl::OkStatus();
        });
  }
  return enqueued.ok() ? NcclResult::kSuccess : NcclResult::kUnhandledCudaError;
}

NcclResult Launch(ncclComm& comm, Work& work) {
  if (++comm.launches % 3 != 0) return EnqueueNow(comm, work);
  std::swap(comm.deferred, work);
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
  Work& work = comm->grouped;
  if (group_comm == nullptr) work.transfers.clear();
  work.stream = reinterpret_cast<device::Stream*>(stream);
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
  Work& work = comm->grouped;
  work.stream = reinterpret_cast<device::Stream*>(stream);
  work.collective = collective;
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
  {
    std::lock_guard lock(NcclState::Get().mutex);
    if (comm->splitting != nullptr && !comm->splitting->resolved) return NcclResult::kSuccess;
    const RankGroup* const group = comm->state->group.get();
    if (group == nullptr || group->joined < group->size()) return NcclResult::kSuccess;
    comm->initialised = true;
  }
  if (comm->polls_left > 0 && --comm->polls_left > 0) return NcclResult::kSuccess;
  *error = NcclResult::kSuccess;
  if (comm->splitting != nullptr) {
    const std::lock_guard lock(NcclState::Get().mutex);
    comm->splitting = nullptr;
    if (comm->child_state != nullptr) *comm->child = CreateComm(std::move(comm->child_state));
  }
  if (comm->deferred.stream != nullptr) {
    *error = EnqueueNow(*comm, comm->deferred);
    comm->deferred.stream = nullptr;
  }
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
