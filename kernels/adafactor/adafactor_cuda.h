#ifndef BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_CUDA_H_
#define BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/adafactor/adafactor_math.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// The calls of adafactor.h on `stream`, without checks of the arguments. Lists and parameters,
// which adafactor_parameters.h fills, may go when a call returns; everything they point to is
// device memory.
//
// Errors  cudaErrorInvalidValue, with nothing launched, if the parameters name no step: one of
//         state and group_steps is null, or both are and step is below 1, or there are no numbers
//         for a segment's group. The kernels end with an error of the stream if what state and
//         group_steps point to was not filled (StepError, step_state.h).

// Five launches for each 380 tensors that are not empty.
template <typename Grad>
cudaError_t LaunchAdafactorFactors(const AdafactorTensor* tensors, int64_t count,
                                   const AdafactorParameters& parameters, cudaStream_t stream);

// One launch for each 320 non-empty segments.
template <typename Grad, typename Copy>
cudaError_t LaunchAdafactorParams(const AdafactorSegment* segments, int64_t count,
                                  const AdafactorParameters& parameters, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_CUDA_H_
