#ifndef BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_CUDA_H_
#define BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/zero_one_adam/zero_one_adam_math.h"

namespace brigade::kernels {

// The operations of zero_one_adam_math.h over lists, and CountRates, on `stream`, without checks of
// the arguments. One launch for each 900 non-empty segments. Rates: cudaErrorInvalidValue, with
// nothing launched, if they name no step; the kernel ends with an error of the stream if what state
// and group_steps point to was not filled (StepError, step_state.h).
template <typename Operation>
cudaError_t LaunchZeroOneElements(const typename Operation::Segment* segments, int64_t count,
                                  const Operation& operation, cudaStream_t stream);
cudaError_t LaunchZeroOneRates(const ZeroOneRates& rates, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ZERO_ONE_ADAM_ZERO_ONE_ADAM_CUDA_H_
