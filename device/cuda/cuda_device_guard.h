#ifndef BRIGADE_DEVICE_CUDA_CUDA_DEVICE_GUARD_H_
#define BRIGADE_DEVICE_CUDA_CUDA_DEVICE_GUARD_H_

namespace brigade::device {

// Makes a device this thread's current one for as long as it lives: which device is current
// otherwise is the caller's business.
//
// Contexts     Only that device gets a primary context. cudaSetDevice back to the former device
//              would make that one's as well: hundreds of megabytes on GPU 0 for every rank.
// Errors       None of its own; a device that cannot be used fails in the call that follows.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int ordinal);
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_CUDA_CUDA_DEVICE_GUARD_H_
