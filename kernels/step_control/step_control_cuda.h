#ifndef BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_CUDA_H_
#define BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_CUDA_H_

#include <cuda_runtime_api.h>

#include "brigade/kernels/step_control/step_control_math.h"

namespace brigade::kernels {

// StepControl on `stream`, without checks of the arguments: what StepControl (step_control.h) does
// once it has checked them. Everything `parameters` points to is device memory. A state without a
// loss scale, as zeros are, decides no step: the update that follows ends with an error of the
// stream.
cudaError_t LaunchStepControl(const StepParameters& parameters, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_CUDA_H_
