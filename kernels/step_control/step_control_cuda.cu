// The decision of one step on the GPU: one thread, a few hundred bytes. It costs a launch, not bandwidth.

#include "brigade/kernels/step_control/step_control_cuda.h"

namespace brigade::kernels {
namespace {

__global__ void StepControlKernel(const __grid_constant__ StepParameters parameters) {
  DecideStep(parameters);
}

}  // namespace

cudaError_t LaunchStepControl(const StepParameters& parameters, cudaStream_t stream) {
  StepControlKernel<<<1, 1, 0, stream>>>(parameters);
  return cudaGetLastError();
}

}  // namespace brigade::kernels
