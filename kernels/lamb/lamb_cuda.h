#ifndef BRIGADE_KERNELS_LAMB_LAMB_CUDA_H_
#define BRIGADE_KERNELS_LAMB_LAMB_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/lamb/lamb_math.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// Lamb on `stream`, without checks of the arguments: what Lamb (lamb.h) does once it has checked
// them. Three launches for each 410 non-empty segments. `segments` and `parameters` may go when the
// call returns; everything they point to is device memory, as are `tiles`, one for each tile of
// each segment. lamb_parameters.h fills `parameters`.
//
// Errors  cudaErrorInvalidValue, with nothing launched, if the parameters name no step: one of
//         state and group_steps is null, or both are and step is below 1, or there are no numbers
//         for a segment's group. The kernel ends with an error of the stream if what state and
//         group_steps point to was not filled (StepError, step_state.h).
template <typename Grad, typename Copy>
cudaError_t LaunchLamb(const LambSegment* segments, int64_t count, const LambParameters& parameters,
                       LambSums* tiles, cudaStream_t stream);

// Its passes apart: LambMoments, LambTrusts and LambParams (lamb.h). One launch for each 410
// non-empty segments, or 560 tensors. The same errors; Trusts reads of the step's values only
// whether it is skipped.
template <typename Grad>
cudaError_t LaunchLambMoments(const LambSegment* segments, int64_t count,
                              const LambParameters& parameters, LambSums* tiles,
                              cudaStream_t stream);
cudaError_t LaunchLambTrusts(const LambTensor* tensors, int64_t count,
                             const LambParameters& parameters, const LambSums* tiles, float* trusts,
                             cudaStream_t stream);
template <typename Copy>
cudaError_t LaunchLambParams(const LambSegment* segments, int64_t count,
                             const LambParameters& parameters, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LAMB_LAMB_CUDA_H_
