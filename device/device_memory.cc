#include "brigade/device/device_memory.h"

#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"

#if BRIGADE_CUDA
#include <cuda_runtime_api.h>

#include "brigade/device/cuda/cuda_backend.h"
#include "brigade/device/cuda/cuda_device_guard.h"
#include "brigade/device/cuda/cuda_status.h"
#endif

namespace brigade::device {

absl::StatusOr<DeviceMemory> MemoryOf(Device device) {
  if (device.kind == DeviceKind::kCpu) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    return DeviceMemory{page * sysconf(_SC_AVPHYS_PAGES), page * sysconf(_SC_PHYS_PAGES)};
  }
#if BRIGADE_CUDA
  // Says why, where there is no such device.
  BRIGADE_RETURN_IF_ERROR(internal::CreateCudaBackend(device.ordinal).status());
  const CudaDeviceGuard guard(device.ordinal);
  size_t free = 0, total = 0;
  BRIGADE_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return DeviceMemory{static_cast<int64_t>(free), static_cast<int64_t>(total)};
#else
  return absl::UnavailableError(absl::StrCat(device.ToString(), ": built without CUDA"));
#endif
}

}  // namespace brigade::device
