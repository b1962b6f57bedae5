#ifndef BRIGADE_KERNELS_LION_LION_CUDA_H_
#define BRIGADE_KERNELS_LION_LION_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/lion/lion_math.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Lion on `stream`, without checks of the arguments: what Lion (lion.h) does once it has checked
// them. One launch for each 536 non-empty segments. `segments` and `parameters` may go when the
// call returns; everything they point to is device memory. lion_parameters.h fills `parameters`.
//
// Errors  cudaErrorInvalidValue, with nothing launched, if the parameters name no step: one of
//         state and group_steps is null, or both are and step is below 1, or there are no numbers
//         for a segment's group. The kernel ends with an error of the stream if what state and
//         group_steps point to was not filled (StepError, step_state.h).
template <typename Grad, typename Copy>
cudaError_t LaunchLion(const LionSegment* segments, int64_t count, const LionParameters& parameters,
                       cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LION_LION_CUDA_H_
