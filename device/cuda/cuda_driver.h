#ifndef BRIGADE_DEVICE_CUDA_CUDA_DRIVER_H_
#define BRIGADE_DEVICE_CUDA_CUDA_DRIVER_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace brigade::device::internal {

// A function of the driver, found by the runtime so that nothing links the driver's library; null
// if the driver lacks it.
template <typename Function>
Function FindInDriver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  return error == cudaSuccess ? reinterpret_cast<Function>(found) : nullptr;
}

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_CUDA_CUDA_DRIVER_H_
