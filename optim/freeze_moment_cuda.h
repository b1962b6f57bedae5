#ifndef BRIGADE_OPTIM_FREEZE_MOMENT_CUDA_H_
#define BRIGADE_OPTIM_FREEZE_MOMENT_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace brigade::optim {

// FreezeMoment on `stream`, without checks of the arguments: what it does (freeze_moment.h) once it
// has checked them. There are elements, in device memory.
cudaError_t LaunchFreezeMoment(float* second_moment, int64_t size, cudaStream_t stream);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_FREEZE_MOMENT_CUDA_H_
