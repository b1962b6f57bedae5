#ifndef BRIGADE_DEVICE_CUDA_CUDA_STATUS_H_
#define BRIGADE_DEVICE_CUDA_CUDA_STATUS_H_

#include <driver_types.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace brigade::device {

// The one place where CUDA's errors become statuses: `what: cudaErrorMemoryAllocation (out of
// memory)`.
//
// Codes        Out of memory: ResourceExhausted. No usable driver or device: Unavailable. Bad
//              arguments: InvalidArgument. No code for this GPU, or not supported: Unimplemented.
//              Wrong moment: FailedPrecondition. A kernel that took too long: DeadlineExceeded. All
//              else, a crashed kernel above all: Internal.
// Effect       Forgets an error of this thread that the runtime would hand to the next
//              cudaGetLastError as well.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_CUDA_CUDA_STATUS_H_
