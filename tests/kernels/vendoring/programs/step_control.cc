#include "brigade/kernels/step_control/step_control_math.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/step_control/step_control_cuda.h"
#else
#include "brigade/kernels/step_control/step_control_cpu.h"
#endif

namespace brigade::vendored {

void RunStepControl() {
  kernels::StepState initial = {};
  initial.last_overflow = -1;
  initial.loss_scale = 1024.0f;
  initial.hysteresis = 2;
  kernels::GradStats rank_stats = {};
  rank_stats.sum_of_squares = 3e8;
  rank_stats.all_finite = 1;
  Array<kernels::StepState> state({initial});
  Array<kernels::GradStats> stats({rank_stats});
  Array<kernels::GroupStep> group_steps(std::vector<kernels::GroupStep>(1));
  Array<float> lr_table({1e-3f, 2e-3f});

  kernels::StepParameters parameters = {};
  parameters.stats = stats.data();
  parameters.ranks = 1;
  parameters.state = state.data();
  parameters.group_steps = group_steps.data();
  parameters.lr_table = lr_table.data();
  parameters.lr_table_size = 2;
  parameters.window = 1000;
  parameters.divisor = 1.0;
  parameters.max_grad_norm = 1.0;
  parameters.min_scale = 1.0f;
  parameters.max_scale = 65536.0f;
  parameters.hysteresis = 2;
  parameters.groups = 1;
  parameters.dynamic = true;
  parameters.check_overflow = true;
  parameters.betas[0] = {0.9, 0.999};
#ifdef ON_CUDA
  Check(kernels::LaunchStepControl(parameters, nullptr));
#else
  kernels::StepControlCpu(parameters);
#endif
  state.Print("step_control state");
  group_steps.Print("step_control group_steps");
}

}  // namespace brigade::vendored
