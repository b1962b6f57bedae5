#ifndef BRIGADE_ADAMW_STEP_CUDA_H_
#define BRIGADE_ADAMW_STEP_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "bk_adam/kernels/step_control/step_control_math.h"
#include "bk_adam/kernels/step_control/step_state.h"
#include "bk_grad_check/kernels/step_control/step_state.h"
#include "csrc/decision.h"

namespace brigade_adamw {

// The tensors of one launch of the update: as many as it can have groups, since each has a step
// count of its own.
inline constexpr int kTensorsPerLaunch = 128;

struct StepParameters {
  StepInputs inputs;
  bk_adam::kernels::StepBetas betas;
  float lr;
  // Device memory, all that follows: the tensors' counts of steps, which this advances.
  float* steps[kTensorsPerLaunch];
  int count;
  bk_adam::kernels::StepState* state;
  // [count].
  bk_adam::kernels::GroupStep* group_steps;
};

// Decides the step and fills `state` and `group_steps`, for LaunchAdam to read. Never waits.
cudaError_t LaunchDecideStep(const StepParameters& parameters, cudaStream_t stream);

// result[0] = the norm, result[1] = 1 unless all is finite. Never waits.
cudaError_t LaunchNorm(const bk_grad_check::kernels::GradStats* stats, double* result,
                       cudaStream_t stream);

}  // namespace brigade_adamw

#endif  // BRIGADE_ADAMW_STEP_CUDA_H_
