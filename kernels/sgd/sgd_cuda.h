#ifndef BRIGADE_KERNELS_SGD_SGD_CUDA_H_
#define BRIGADE_KERNELS_SGD_SGD_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/sgd/sgd_math.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Sgd on `stream`, without checks of the arguments: what Sgd (sgd.h) does once it has checked them.
// One launch for each 540 non-empty segments. `segments` and `parameters` may go when the call
// returns; everything they point to is device memory. sgd_parameters.h fills `parameters`.
//
// Errors  cudaErrorInvalidValue, with nothing launched, if the parameters name no step: one of
//         state and group_steps is null, or both are and step is below 1, or there are no numbers
//         for a segment's group. The kernel ends with an error of the stream if what state and
//         group_steps point to was not filled (StepError, step_state.h).
template <typename Grad, typename Copy>
cudaError_t LaunchSgd(const SgdSegment* segments, int64_t count, const SgdParameters& parameters,
                      cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SGD_SGD_CUDA_H_
