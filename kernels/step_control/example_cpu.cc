// What a step decides from the gradients' statistics, on the CPU: overflow, clipping, loss scale,
// step count. Headers only.
//
// Prints: step 1, norm 5.0, multiplier 0.2

#include <cstdio>

#include "brigade/kernels/step_control/step_control_cpu.h"
#include "brigade/kernels/step_control/step_control_parameters.h"

namespace {

namespace bk = brigade::kernels;

// The step of one rank and one group, with gradients clipped to a norm of 1, at a fixed rate.
void Decide(const bk::GradStats* stats, const float* lr, bk::StepState* state,
            bk::GroupStep* group_step) {
  const bk::StepBetas betas = {0.9, 0.999};
  bk::StepParameters parameters = bk::MakeStepParameters(bk::LossScaleOptions(), &betas, 1);
  parameters.stats = stats;
  parameters.ranks = 1;
  parameters.state = state;
  parameters.group_steps = group_step;
  parameters.lr_table = lr;
  parameters.lr_table_size = 1;
  parameters.max_grad_norm = 1.0;
  bk::StepControlCpu(parameters);
}

}  // namespace

int main() {
  bk::LossScaleOptions scale;
  scale.initial_scale = 1.0f;
  const float lr = 1e-3f;
  const bk::GradStats stats = {/*sum_of_squares=*/25.0, /*all_finite=*/1};
  bk::StepState state = bk::InitialStepState(scale);
  bk::GroupStep group_step = {};
  Decide(&stats, &lr, &state, &group_step);
  std::printf("step %d, norm %.1f, multiplier %.1f\n", static_cast<int>(state.step),
              state.grad_norm, state.grad_multiplier);
}
