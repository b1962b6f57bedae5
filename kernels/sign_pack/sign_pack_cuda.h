#ifndef BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_CUDA_H_
#define BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// SignPack and SignUnpack on `stream`, without checks of the arguments: what those of sign_pack.h
// do once they have checked them. Two launches for each 780 non-empty segments, and two or three
// between them; or one for each 1000. `segments` may go when the call returns; `workspace` (a
// double per tile of 8192 elements of each segment, and kSignStatsDoubles), `scale`, arrays, errors
// and messages are device memory. T is float, Half or BFloat16.
template <typename T>
cudaError_t LaunchSignPack(const SignPackSegment* segments, int64_t count, double* workspace,
                           float* scale, cudaStream_t stream);
template <typename T>
cudaError_t LaunchSignUnpack(const SignUnpackSegment* segments, int64_t count,
                             const SignUnpackParameters& parameters, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_SIGN_PACK_SIGN_PACK_CUDA_H_
