// The limit of a rank's statistics on the GPU: one thread, some tens of bytes. It costs a launch.

#include "brigade/kernels/launch_kernel.h"
#include "brigade/optim/limit_stats_cuda.h"

namespace brigade::optim {
namespace {

__global__ void __launch_bounds__(1) LimitStatsKernel(StatsLimit limit) { ApplyStatsLimit(limit); }

}  // namespace

cudaError_t LaunchLimitStats(const StatsLimit& limit, cudaStream_t stream) {
  return kernels::LaunchKernel<LimitStatsKernel>(1, 1, stream, limit);
}

}  // namespace brigade::optim
