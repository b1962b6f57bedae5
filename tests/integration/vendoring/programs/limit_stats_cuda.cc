#include "brigade/optim/limit_stats_cuda.h"

#include "brigade/tests/integration/vendoring/programs/program.h"

using namespace brigade::kernels;
using namespace brigade::optim;
using namespace brigade::vendored;

int main() {
  struct Memory {
    GradStats gradients, others;
    StepState state;
  };
  Memory start = {{16, 1}, {4, 1}, {}};
  start.state.loss_scale = 2;
  const OnDevice<Memory> memory(start);
  // A norm of 4, of gradients that are scaled by 2.
  StatsLimit limit = {&memory->gradients, 1, &memory->others, &memory->state, 1.0, 3.0};
  Check(LaunchLimitStats(limit, nullptr));
  Expect(memory.Read().gradients.all_finite == 1, "2 is below 3");
  limit.limit = 1.5;
  Check(LaunchLimitStats(limit, nullptr));
  Expect(memory.Read().gradients.all_finite == 0, "2 is not below 1.5");
}
