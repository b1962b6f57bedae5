#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/grad_check/grad_check_cuda.h"
#else
#include "brigade/kernels/grad_check/grad_check_cpu.h"
#endif

namespace brigade::vendored {

using precision::Half;

void RunGradCheck() {
  // Two tiles and a part of a third.
  constexpr int64_t kGradients = 2 * kernels::kGradTile + kSize;
  Array<Half> grad(Values<Half>(kGradients, 1));
  Array<double> sums(std::vector<double>(3));
  Array<kernels::GradStats> stats(std::vector<kernels::GradStats>(1));
  kernels::GradSegment segment = {};
  segment.grad = grad.data();
  segment.size = kGradients;
#ifdef ON_CUDA
  Check(kernels::LaunchGradCheck<Half>(&segment, 1, sums.data(), stats.data(), nullptr));
#else
  kernels::GradTileSumsRange<Half>(segment, 0, kGradients, sums.data());
  *stats.data() = kernels::GradCheckFinishCpu(sums.data(), 3);
#endif
  stats.Print("grad_check stats");
}

}  // namespace brigade::vendored
