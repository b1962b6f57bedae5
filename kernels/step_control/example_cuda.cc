// What a step decides from the gradients' statistics, on the GPU: overflow, clipping, loss scale,
// step count. It needs step_control_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: step 1, norm 5.0, multiplier 0.2

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/step_control/step_control_cuda.h"
#include "brigade/kernels/step_control/step_control_parameters.h"

namespace {

namespace bk = brigade::kernels;

// The step of one rank and one group, with gradients clipped to a norm of 1, at a fixed rate; all
// pointers are device memory.
cudaError_t Decide(const bk::GradStats* stats, const float* lr, bk::StepState* state,
                   bk::GroupStep* group_step, cudaStream_t stream) {
  const bk::StepBetas betas = {0.9, 0.999};
  bk::StepParameters parameters = bk::MakeStepParameters(bk::LossScaleOptions(), &betas, 1);
  parameters.stats = stats;
  parameters.ranks = 1;
  parameters.state = state;
  parameters.group_steps = group_step;
  parameters.lr_table = lr;
  parameters.lr_table_size = 1;
  parameters.max_grad_norm = 1.0;
  return bk::LaunchStepControl(parameters, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    bk::GradStats stats;
    bk::StepState state;
    bk::GroupStep group_step;
    float lr;
  };
  bk::LossScaleOptions scale;
  scale.initial_scale = 1.0f;
  Memory host = {
      {/*sum_of_squares=*/25.0, /*all_finite=*/1}, bk::InitialStepState(scale), {}, 1e-3f};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Decide(&device->stats, &device->lr, &device->state, &device->group_step, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("step %d, norm %.1f, multiplier %.1f\n", static_cast<int>(host.state.step),
              host.state.grad_norm, host.state.grad_multiplier);
  Check(cudaFree(device));
}
