// Errors as they were before an exchange that is void, on the GPU. Nearly always it is not: then a
// thread reads the scales, which the caches hold, and ends.

#include <algorithm>

#include "brigade/collectives/compressed/restore_errors_cuda.h"
#include "brigade/collectives/compressed/restore_errors_math.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::collectives {
namespace {

constexpr int kThreads = 256;
// Untuned: enough to fill a GPU, and few for a launch that does nothing.
constexpr int64_t kMaxBlocks = 1024;

__global__ void __launch_bounds__(kThreads)
    RestoreErrorsKernel(ErrorExchange exchange, const float* saved, float* error, int64_t size) {
  if (!IsVoid(exchange)) return;
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += threads) {
    error[i] = saved[i];
  }
}

}  // namespace

cudaError_t LaunchRestoreErrors(const ErrorExchange& exchange, const float* saved, float* error,
                                int64_t size, cudaStream_t stream) {
  const int64_t blocks = std::min((size + kThreads - 1) / kThreads, kMaxBlocks);
  return kernels::LaunchKernel<RestoreErrorsKernel>(static_cast<unsigned>(blocks), kThreads, stream,
                                                    exchange, saved, error, size);
}

}  // namespace brigade::collectives
