#ifndef BRIGADE_EMULATOR_RUNTIME_LIBRARY_H_
#define BRIGADE_EMULATOR_RUNTIME_LIBRARY_H_

// For stand-ins of CUDA's libraries, whose kernels are functions of the host.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace brigade::emulator {

// Keeps kernels of a library in the order in which they were enqueued, whatever their streams are.
// Those of a graph keep it with all others of the graph that have a chain: nodes run one after the
// other, and kernels that wait for other ranks must be in the same order on all.
class KernelChain {
 public:
  KernelChain();
  ~KernelChain();

 private:
  friend cudaError_t EnqueueKernel(cudaStream_t stream, absl::string_view name,
                                   std::function<absl::Status()> work, KernelChain* chain);
  struct State;
  const std::unique_ptr<State> state_;
};

// Puts work into a stream as the launch of a kernel would be: in the stream's order, captured into
// a graph if the stream captures (it then runs in each launch of the graph), refused with the
// device's error. `work` runs on the stream's thread and may wait for work in other streams. A
// failure of it is reported, and becomes the device's error. Without a chain it is in the
// order of its stream, or of the graph's edges, alone.
cudaError_t EnqueueKernel(cudaStream_t stream, absl::string_view name,
                          std::function<absl::Status()> work, KernelChain* chain = nullptr);

// Where `bytes` of memory lie for the host, to be used while such work runs.
//
// Errors       With the buffer's name: InvalidArgument if they are not in one live allocation that
//              the work's device reaches, FailedPrecondition if bytes to be read were never
//              written. Bytes to be written count as written; those that are only reached do not.
absl::StatusOr<const void*> ReadableBytes(const void* address, int64_t bytes);
absl::StatusOr<void*> WritableBytes(void* address, int64_t bytes);
absl::StatusOr<void*> ReachableBytes(void* address, int64_t bytes);

// Reports a wrong call of the library, as the runtime does with its own (control.h).
void ReportMistake(absl::string_view text);

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_RUNTIME_LIBRARY_H_
