#ifndef BRIGADE_DEVICE_CUDA_CUDA_DEVICE_GUARD_H_
#define BRIGADE_DEVICE_CUDA_CUDA_DEVICE_GUARD_H_

#include <cuda_runtime_api.h>

namespace brigade::device {

// Makes a device this thread's current one for a call, and then the former one again: which device
// is current is the caller's business. If that fails, the CUDA call that follows reports it.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int ordinal) : wanted_(ordinal) {
    if (cudaGetDevice(&former_) != cudaSuccess) former_ = wanted_;
    if (former_ != wanted_) static_cast<void>(cudaSetDevice(wanted_));
  }
  ~CudaDeviceGuard() {
    if (former_ != wanted_) static_cast<void>(cudaSetDevice(former_));
  }
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

 private:
  const int wanted_;
  int former_ = 0;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_CUDA_CUDA_DEVICE_GUARD_H_
