#ifndef BRIGADE_OPTIM_LIMIT_STATS_CUDA_H_
#define BRIGADE_OPTIM_LIMIT_STATS_CUDA_H_

#include <cuda_runtime_api.h>

#include "brigade/optim/limit_stats_math.h"

namespace brigade::optim {

// LimitStats on `stream`, without checks of the arguments: what it does (limit_stats.h) once it has
// checked them.
cudaError_t LaunchLimitStats(const StatsLimit& limit, cudaStream_t stream);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_LIMIT_STATS_CUDA_H_
