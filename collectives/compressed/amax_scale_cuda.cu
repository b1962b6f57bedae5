// The scale of a wire on the GPU: one thread, 12 bytes. It costs a launch, not bandwidth.

#include "brigade/collectives/compressed/amax_scale_cuda.h"
#include "brigade/collectives/compressed/amax_scale_math.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::collectives {
namespace {

__global__ void __launch_bounds__(1)
    AmaxScaleKernel(const float* amax, int64_t terms, int32_t limit, AmaxScale* result) {
  *result = AmaxScaleFor(*amax, terms, limit);
}

}  // namespace

cudaError_t LaunchAmaxScale(const float* amax, int64_t terms, int32_t limit, AmaxScale* result,
                            cudaStream_t stream) {
  return kernels::LaunchKernel<AmaxScaleKernel>(1, 1, stream, amax, terms, limit, result);
}

}  // namespace brigade::collectives
