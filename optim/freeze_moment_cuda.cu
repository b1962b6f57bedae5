// Once in a run, over the second moments: 4 bytes an element.

#include <algorithm>
#include <limits>

#include "brigade/kernels/launch_kernel.h"
#include "brigade/optim/freeze_moment_cuda.h"

namespace brigade::optim {
namespace {

constexpr int kThreads = 256;
// Untuned: enough to fill a GPU.
constexpr int64_t kMaxBlocks = 1024;

__global__ void __launch_bounds__(kThreads)
    FreezeMomentKernel(float* second_moment, int64_t size, float infinity) {
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += threads) {
    if (second_moment[i] == 0.0f) second_moment[i] = infinity;
  }
}

}  // namespace

cudaError_t LaunchFreezeMoment(float* second_moment, int64_t size, cudaStream_t stream) {
  const int64_t blocks = std::min((size + kThreads - 1) / kThreads, kMaxBlocks);
  return kernels::LaunchKernel<FreezeMomentKernel>(static_cast<unsigned>(blocks), kThreads, stream,
                                                   second_moment, size,
                                                   std::numeric_limits<float>::infinity());
}

}  // namespace brigade::optim
