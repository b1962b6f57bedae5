#include "brigade/collectives/engines/nccl/api.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"

#if BRIGADE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace brigade::collectives {
namespace {

constexpr int kOldest = 21900;  // has ncclCommSplit, and ncclCommRegister

std::string VersionName(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

bool IsCapturing(NcclStream stream) {
#if BRIGADE_CUDA
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // the call on the stream says what is wrong with it
    return false;
  }
  return status != cudaStreamCaptureStatusNone;
#else
  static_cast<void>(stream);
  return false;
#endif
}

absl::Status LaunchOnCuda(device::Stream& stream, const device::Operation& operation,
                          absl::FunctionRef<absl::Status(NcclStream stream)> call) {
  return stream.Launch(
      operation, [&](void* cuda_stream) { return call(static_cast<NcclStream>(cuda_stream)); });
}

}  // namespace

absl::StatusOr<NcclApi> LoadNccl(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat("NCCL is not to be found: ", dlerror()));
  }
  NcclApi api;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) absl::StrAppend(&missing, missing.empty() ? "" : ", ", name);
  };
  find(api.get_version, "ncclGetVersion");
  int version = 0;
  if (missing.empty() && api.get_version(&version) == NcclResult::kSuccess && version < kOldest) {
    return absl::UnavailableError(absl::StrCat("NCCL ", VersionName(version), " at ", library,
                                               " is older than ", VersionName(kOldest)));
  }
  find(api.get_error_string, "ncclGetErrorString");
  find(api.get_last_error, "ncclGetLastError");
  find(api.get_unique_id, "ncclGetUniqueId");
  find(api.comm_init_rank_config, "ncclCommInitRankConfig");
  find(api.comm_split, "ncclCommSplit");
  find(api.comm_get_async_error, "ncclCommGetAsyncError");
  find(api.comm_count, "ncclCommCount");
  find(api.comm_user_rank, "ncclCommUserRank");
  find(api.comm_finalize, "ncclCommFinalize");
  find(api.comm_destroy, "ncclCommDestroy");
  find(api.comm_abort, "ncclCommAbort");
  find(api.comm_register, "ncclCommRegister");
  find(api.comm_deregister, "ncclCommDeregister");
  find(api.group_start, "ncclGroupStart");
  find(api.group_end, "ncclGroupEnd");
  find(api.all_reduce, "ncclAllReduce");
  find(api.reduce_scatter, "ncclReduceScatter");
  find(api.all_gather, "ncclAllGather");
  find(api.broadcast, "ncclBroadcast");
  find(api.send, "ncclSend");
  find(api.receive, "ncclRecv");
  if (!missing.empty()) {
    return absl::UnavailableError(absl::StrCat("NCCL at ", library, " has no ", missing));
  }
  find(api.comm_revoke, "ncclCommRevoke");  // may be missing
  api.supports = [](device::DeviceKind kind) { return kind == device::DeviceKind::kCuda; };
  api.launch = LaunchOnCuda;
  api.is_capturing = IsCapturing;
  return api;
}

}  // namespace brigade::collectives
