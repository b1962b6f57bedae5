#ifndef BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_CUDA_H_
#define BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/one_bit_lamb/one_bit_lamb_math.h"

namespace brigade::kernels {

// The passes of one_bit_lamb.h on `stream`, without checks of the arguments. One launch for each
// 400 non-empty segments, or 500 tensors; Scales two. cudaErrorInvalidValue if the parameters
// (lamb_parameters.h) name no step, or not that of each segment's group; nothing is enqueued then.
// Send and Moments end with an error of the stream if what state and group_steps point to was not
// filled (StepError, step_state.h).
cudaError_t LaunchOneBitLambRatios(const LambTensor* tensors, int64_t count,
                                   const LambParameters& parameters,
                                   const OneBitLambConstants& constants, const LambSums* sums,
                                   OneBitLambNumbers* numbers, cudaStream_t stream);
cudaError_t LaunchOneBitLambFreeze(const OneBitLambSegment* segments, int64_t count,
                                   const OneBitLambNumbers* numbers, OneBitLambSums* sums,
                                   cudaStream_t stream);
cudaError_t LaunchOneBitLambScales(const LambTensor* tensors, const int64_t* sizes, int64_t count,
                                   const OneBitLambSums* sums, double* total,
                                   OneBitLambNumbers* numbers, cudaStream_t stream);
template <typename Grad>
cudaError_t LaunchOneBitLambSend(const OneBitLambMessage* messages, int64_t count,
                                 const LambParameters& parameters, const OneBitLambNumbers* numbers,
                                 cudaStream_t stream);
cudaError_t LaunchOneBitLambReceive(const OneBitLambMessage* messages, int64_t count,
                                    const OneBitLambNumbers* numbers, cudaStream_t stream);
cudaError_t LaunchOneBitLambMoments(const OneBitLambSegment* segments, int64_t count,
                                    const LambParameters& parameters, OneBitLambSums* sums,
                                    cudaStream_t stream);
cudaError_t LaunchOneBitLambTrusts(const LambTensor* tensors, int64_t count,
                                   const LambParameters& parameters,
                                   const OneBitLambConstants& constants, const OneBitLambSums* sums,
                                   OneBitLambNumbers* numbers, float* trusts, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_CUDA_H_
