#ifndef BRIGADE_KERNELS_LAUNCH_KERNEL_H_
#define BRIGADE_KERNELS_LAUNCH_KERNEL_H_

// How our kernels are launched. For .cu files.

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <utility>

#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// A kernel that the program launches somewhere, in the list of all of them.
class LaunchedKernel {
 public:
  explicit LaunchedKernel(const void* function) : function_(function), next_(First().load()) {
    while (!First().compare_exchange_weak(next_, this)) {
    }
  }

  const void* function() const { return function_; }
  const LaunchedKernel* next() const { return next_; }

  static std::atomic<LaunchedKernel*>& First() {
    static std::atomic<LaunchedKernel*> first{nullptr};
    return first;
  }

 private:
  const void* const function_;
  LaunchedKernel* next_;
};

template <auto* kKernel>
inline LaunchedKernel launched_kernel(reinterpret_cast<const void*>(kKernel));

template <auto* kKernel, typename Function = decltype(kKernel)>
struct KernelLaunch;
template <auto* kKernel, typename... Parameters>
struct KernelLaunch<kKernel, void (*)(Parameters...)> {
  static cudaError_t Run(unsigned blocks, unsigned threads, size_t shared_bytes,
                         cudaStream_t stream, const Parameters&... arguments) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    return cudaLaunchKernel(launched_kernel<kKernel>.function(), blocks, threads, pointers,
                            shared_bytes, stream);
  }
};

// Launches a kernel and returns the error of this launch. cudaGetLastError after <<<>>> would
// return an older error of the thread, whoever made it.
template <auto* kKernel, typename... Arguments>
cudaError_t LaunchKernel(unsigned blocks, unsigned threads, cudaStream_t stream,
                         Arguments&&... arguments) {
  return KernelLaunch<kKernel>::Run(blocks, threads, /*shared_bytes=*/0, stream,
                                    std::forward<Arguments>(arguments)...);
}

// The same with dynamic shared memory, for which a kernel has to ask where it is more than 48 KiB.
template <auto* kKernel, typename... Arguments>
cudaError_t LaunchKernelWithMemory(unsigned blocks, unsigned threads, size_t shared_bytes,
                                   cudaStream_t stream, Arguments&&... arguments) {
  constexpr size_t kWithoutAsking = 48 << 10;
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(launched_kernel<kKernel>.function(),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  return KernelLaunch<kKernel>::Run(blocks, threads, shared_bytes, stream,
                                    std::forward<Arguments>(arguments)...);
}

// Loads every kernel that LaunchKernel launches anywhere in the program, on the current device.
// CUDA loads a kernel when it is first launched, and may wait for kernels that run: for ever, if
// those wait for what the launching thread does next, as kernels of NCCL do. Source: "Lazy Loading"
// of the CUDA Programming Guide.
inline cudaError_t LoadKernels() {
  cudaFuncAttributes attributes;
  for (const LaunchedKernel* kernel = LaunchedKernel::First().load(); kernel != nullptr;
       kernel = kernel->next()) {
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel->function());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LAUNCH_KERNEL_H_
