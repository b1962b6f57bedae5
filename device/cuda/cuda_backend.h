#ifndef BRIGADE_DEVICE_CUDA_CUDA_BACKEND_H_
#define BRIGADE_DEVICE_CUDA_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "brigade/device/internal/backend.h"

namespace brigade::device::internal {

// A GPU as a device, through the CUDA runtime. Changes no setting of the device and never resets
// it. Unavailable, with the reason, if there is no usable driver or no such GPU.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal);

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CUDA_CUDA_BACKEND_H_
