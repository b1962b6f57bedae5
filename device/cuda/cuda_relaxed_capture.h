#ifndef BRIGADE_DEVICE_CUDA_CUDA_RELAXED_CAPTURE_H_
#define BRIGADE_DEVICE_CUDA_CUDA_RELAXED_CAPTURE_H_

#include <cuda_runtime_api.h>

namespace brigade::device::internal {

// While it lives, this thread may allocate, free, query and wait although some stream of the
// process is being captured into a graph; otherwise CUDA refuses such calls and, worse, makes the
// capture invalid, in global mode whatever thread it belongs to. For calls that have nothing to do
// with what is captured. Source: cudaThreadExchangeStreamCaptureMode.
class CudaRelaxedCapture {
 public:
  CudaRelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~CudaRelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  CudaRelaxedCapture(const CudaRelaxedCapture&) = delete;
  CudaRelaxedCapture& operator=(const CudaRelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CUDA_CUDA_RELAXED_CAPTURE_H_
