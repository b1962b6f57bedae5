// What lies between PyTorch's tensors and the kernels' own structs, on the GPU, so that the host
// waits for nothing: a few hundred bytes.

#include "csrc/step_cuda.h"

namespace brigade_adamw {
namespace {

__global__ void DecideStepKernel(const __grid_constant__ StepParameters p) {
  const Decision decision = Decide(p.inputs);
  const int i = threadIdx.x;
  if (i == 0) {
    bk_adam::kernels::StepState state = {};
    // The tensors count their steps; this only says that somebody filled the state.
    state.step = 1;
    state.grad_multiplier = decision.multiplier;
    state.skip = decision.skip ? 1 : 0;
    *p.state = state;
  }
  if (i < p.count && !decision.skip) {
    const float step = *p.steps[i] + 1.0f;
    *p.steps[i] = step;
    p.group_steps[i] = bk_adam::kernels::MakeGroupStep(p.betas, p.lr, static_cast<int64_t>(step));
  }
}

__global__ void NormKernel(const bk_grad_check::kernels::GradStats* stats, double* result) {
  result[0] = bk_adam::precision::Sqrt(stats->sum_of_squares);
  result[1] = stats->all_finite != 0 ? 0.0 : 1.0;
}

}  // namespace

cudaError_t LaunchDecideStep(const StepParameters& parameters, cudaStream_t stream) {
  DecideStepKernel<<<1, kTensorsPerLaunch, 0, stream>>>(parameters);
  return cudaGetLastError();
}

cudaError_t LaunchNorm(const bk_grad_check::kernels::GradStats* stats, double* result,
                       cudaStream_t stream) {
  NormKernel<<<1, 1, 0, stream>>>(stats, result);
  return cudaGetLastError();
}

}  // namespace brigade_adamw
