#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_API_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_API_H_

#include <climits>
#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/device.h"
#include "brigade/device/stream.h"

// The same types as in nccl.h and in CUDA's headers, with or without those.
struct ncclComm;
struct CUstream_st;

namespace brigade::collectives {

// What we use of NCCL's binary interface: types and values of nccl.h 2.28.9, written down here so
// that nothing needs that header. tests/collectives/engines/nccl/nccl_abi_test.cc compares the two
// where it is installed.
using NcclComm = ::ncclComm*;
// The same type as cudaStream_t.
using NcclStream = ::CUstream_st*;

enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class NcclType : int {
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum class NcclOp : int { kSum = 0, kMax = 2, kMin = 3 };

struct NcclUniqueId {
  char internal[128];
};

// ncclConfig_t as of 2.18, which later libraries take for a beginning of theirs and complete.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = 0;
  // Not set, like the members that follow.
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  // Padding in 2.18.
  int traffic_class = INT_MIN;
};

// The functions of one NCCL, or of a stand-in. Names and meanings as in its documentation,
// contracts as of non-blocking communicators.
struct NcclApi {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  const char* (*get_last_error)(NcclComm comm) = nullptr;

  NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;
  NcclResult (*comm_init_rank_config)(NcclComm* comm, int ranks, NcclUniqueId id, int rank,
                                      NcclConfig* config) = nullptr;
  NcclResult (*comm_split)(NcclComm comm, int color, int key, NcclComm* child,
                           NcclConfig* config) = nullptr;
  NcclResult (*comm_get_async_error)(NcclComm comm, NcclResult* error) = nullptr;
  NcclResult (*comm_count)(NcclComm comm, int* count) = nullptr;
  NcclResult (*comm_user_rank)(NcclComm comm, int* rank) = nullptr;
  NcclResult (*comm_finalize)(NcclComm comm) = nullptr;
  NcclResult (*comm_destroy)(NcclComm comm) = nullptr;
  NcclResult (*comm_abort)(NcclComm comm) = nullptr;
  // Null before 2.28.
  NcclResult (*comm_revoke)(NcclComm comm, int flags) = nullptr;
  NcclResult (*comm_register)(NcclComm comm, void* data, size_t bytes, void** handle) = nullptr;
  NcclResult (*comm_deregister)(NcclComm comm, void* handle) = nullptr;

  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  NcclResult (*all_reduce)(const void* input, void* output, size_t count, NcclType type, NcclOp op,
                           NcclComm comm, NcclStream stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* input, void* output, size_t output_count, NcclType type,
                               NcclOp op, NcclComm comm, NcclStream stream) = nullptr;
  NcclResult (*all_gather)(const void* input, void* output, size_t input_count, NcclType type,
                           NcclComm comm, NcclStream stream) = nullptr;
  NcclResult (*broadcast)(const void* input, void* output, size_t count, NcclType type, int root,
                          NcclComm comm, NcclStream stream) = nullptr;
  NcclResult (*send)(const void* input, size_t count, NcclType type, int peer, NcclComm comm,
                     NcclStream stream) = nullptr;
  NcclResult (*receive)(void* output, size_t count, NcclType type, int peer, NcclComm comm,
                        NcclStream stream) = nullptr;

  // The functions below are not NCCL's: they say how it meets a device, and a stand-in for NCCL has
  // its own.

  // Whether it works on the memory and the streams of such a device.
  bool (*supports)(device::DeviceKind kind) = nullptr;
  // Calls `call` with the stream as the functions above take it, as Stream::Launch does.
  absl::Status (*launch)(device::Stream& stream, const device::Operation& operation,
                         absl::FunctionRef<absl::Status(NcclStream stream)> call) = nullptr;
  // Whether the stream is being captured into a CUDA graph.
  bool (*is_capturing)(NcclStream stream) = nullptr;
};

// NCCL as it is found at run time; stays loaded. Unavailable, naming the library, if there is none,
// if it is older than 2.19.0, or if it lacks a function.
absl::StatusOr<NcclApi> LoadNccl(const std::string& library = "libnccl.so.2");

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_API_H_
