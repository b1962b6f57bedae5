// What a step decides from the gradients' statistics, on the CPU: overflow, clipping, loss scale,
// step count. Headers only.
//
// Prints: step 1, norm 5.0, multiplier 0.2

#include <cstdio>

#include "brigade/kernels/step_control/step_control_cpu.h"
#include "brigade/kernels/step_control/step_control_parameters.h"

int main() {
  namespace bk = brigade::kernels;
  bk::LossScaleOptions scale;
  scale.initial_scale = 1.0f;
  const bk::StepBetas betas = {0.9, 0.999};
  const float lr = 1e-3f;
  const bk::GradStats stats = {/*sum_of_squares=*/25.0, /*all_finite=*/1};
  bk::StepState state = bk::InitialStepState(scale);
  bk::GroupStep group_step = {};

  bk::StepParameters parameters = bk::MakeStepParameters(scale, &betas, 1);
  parameters.stats = &stats;
  parameters.ranks = 1;
  parameters.state = &state;
  parameters.group_steps = &group_step;
  parameters.lr_table = &lr;
  parameters.lr_table_size = 1;
  parameters.max_grad_norm = 1.0;
  bk::StepControlCpu(parameters);
  std::printf("step %d, norm %.1f, multiplier %.1f\n", static_cast<int>(state.step),
              state.grad_norm, state.grad_multiplier);
}
