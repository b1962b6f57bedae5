// The scale of a wire on the GPU: one thread, 12 bytes. It costs a launch, not bandwidth.

#include "brigade/collectives/compressed/amax_scale_cuda.h"
#include "brigade/collectives/compressed/amax_scale_math.h"

namespace brigade::kernels {
namespace {

__global__ void __launch_bounds__(1)
    WireScaleKernel(const float* abs_max, int64_t terms, int32_t limit, WireScale* result) {
  *result = ChooseScale(*abs_max, terms, limit);
}

}  // namespace

cudaError_t LaunchWireScale(const float* abs_max, int64_t terms, int32_t limit, WireScale* result,
                            cudaStream_t stream) {
  WireScaleKernel<<<1, 1, 0, stream>>>(abs_max, terms, limit, result);
  return cudaGetLastError();
}

}  // namespace brigade::kernels
