// The decision of one step on the GPU: one thread, then one a group; a few hundred bytes. It costs
// a launch, not bandwidth.

#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/step_control/step_control_cuda.h"

namespace brigade::kernels {
namespace {

__global__ void __launch_bounds__(kMaxStepGroups)
    StepControlKernel(const __grid_constant__ StepParameters parameters) {
  if (threadIdx.x == 0) DecideStep(parameters);
  __syncthreads();  // makes the state visible to the block
  if (threadIdx.x < parameters.groups) DecideGroup(parameters, threadIdx.x);
}

}  // namespace

cudaError_t LaunchStepControl(const StepParameters& parameters, cudaStream_t stream) {
  return LaunchKernel<StepControlKernel>(1, kMaxStepGroups, stream, parameters);
}

}  // namespace brigade::kernels
