// The functions of nccl.h, on CUDA's streams: libnccl.so.2.

#include <string>

#include "brigade/emulator/nccl/communicator.h"
#include "brigade/emulator/nccl/cuda_streams.h"

namespace {

using brigade::emulator::CudaStreams;
using brigade::emulator::NcclApi;
using brigade::emulator::NcclComm;
using brigade::emulator::NcclConfig;
using brigade::emulator::NcclFunctions;
using brigade::emulator::NcclOp;
using brigade::emulator::NcclResult;
using brigade::emulator::NcclState;
using brigade::emulator::NcclStream;
using brigade::emulator::NcclType;
using brigade::emulator::NcclUniqueId;

const NcclApi& Functions() {
  static const NcclApi functions = NcclFunctions(CudaStreams());
  return functions;
}

}  // namespace

extern "C" {

NcclResult ncclGetVersion(int* version) { return Functions().get_version(version); }

const char* ncclGetErrorString(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess:
      return "ncclSuccess";
    case NcclResult::kUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case NcclResult::kSystemError:
      return "ncclSystemError";
    case NcclResult::kInternalError:
      return "ncclInternalError";
    case NcclResult::kInvalidArgument:
      return "ncclInvalidArgument";
    case NcclResult::kInvalidUsage:
      return "ncclInvalidUsage";
    case NcclResult::kRemoteError:
      return "ncclRemoteError";
    case NcclResult::kInProgress:
      return "ncclInProgress";
  }
  return "no ncclResult_t";
}

// The communicator is ignored, as NCCL does.
const char* ncclGetLastError(NcclComm) {
  thread_local std::string last;
  const brigade::device::MutexLock lock(NcclState::Get().mutex);
  last = NcclState::Get().last_error;
  return last.c_str();
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) { return Functions().get_unique_id(id); }

NcclResult ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  return Functions().comm_init_rank_config(comm, ranks, id, rank, config);
}

NcclResult ncclCommSplit(NcclComm comm, int color, int key, NcclComm* child, NcclConfig* config) {
  return Functions().comm_split(comm, color, key, child, config);
}

NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* error) {
  return Functions().comm_get_async_error(comm, error);
}

NcclResult ncclCommCount(NcclComm comm, int* count) { return Functions().comm_count(comm, count); }

NcclResult ncclCommUserRank(NcclComm comm, int* rank) {
  return Functions().comm_user_rank(comm, rank);
}

NcclResult ncclCommFinalize(NcclComm comm) { return Functions().comm_finalize(comm); }

NcclResult ncclCommDestroy(NcclComm comm) { return Functions().comm_destroy(comm); }

NcclResult ncclCommAbort(NcclComm comm) { return Functions().comm_abort(comm); }

NcclResult ncclCommRevoke(NcclComm comm, int flags) { return Functions().comm_revoke(comm, flags); }

NcclResult ncclCommRegister(NcclComm comm, void* data, size_t bytes, void** handle) {
  return Functions().comm_register(comm, data, bytes, handle);
}

NcclResult ncclCommDeregister(NcclComm comm, void* handle) {
  return Functions().comm_deregister(comm, handle);
}

NcclResult ncclGroupStart() { return Functions().group_start(); }

NcclResult ncclGroupEnd() { return Functions().group_end(); }

NcclResult ncclAllReduce(const void* input, void* output, size_t count, NcclType type, NcclOp op,
                         NcclComm comm, NcclStream stream) {
  return Functions().all_reduce(input, output, count, type, op, comm, stream);
}

NcclResult ncclReduceScatter(const void* input, void* output, size_t output_count, NcclType type,
                             NcclOp op, NcclComm comm, NcclStream stream) {
  return Functions().reduce_scatter(input, output, output_count, type, op, comm, stream);
}

NcclResult ncclAllGather(const void* input, void* output, size_t input_count, NcclType type,
                         NcclComm comm, NcclStream stream) {
  return Functions().all_gather(input, output, input_count, type, comm, stream);
}

NcclResult ncclBroadcast(const void* input, void* output, size_t count, NcclType type, int root,
                         NcclComm comm, NcclStream stream) {
  return Functions().broadcast(input, output, count, type, root, comm, stream);
}

NcclResult ncclSend(const void* input, size_t count, NcclType type, int peer, NcclComm comm,
                    NcclStream stream) {
  return Functions().send(input, count, type, peer, comm, stream);
}

NcclResult ncclRecv(void* output, size_t count, NcclType type, int peer, NcclComm comm,
                    NcclStream stream) {
  return Functions().receive(output, count, type, peer, comm, stream);
}

}  // extern "C"
