#ifndef BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_CUDA_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/collectives/compressed/sparse_mean_math.h"

namespace brigade::collectives {

// SparseMean on `stream`, without checks of the arguments: what it does (sparse_mean.h) once it has
// checked them. There are elements; the pointers are device memory.
//
// Types  Instantiated for float, Half and BFloat16.
template <typename T>
cudaError_t LaunchSparseMean(const SparseMessages& messages, float factor, T* output, int64_t size,
                             int32_t* non_finite, cudaStream_t stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_SPARSE_MEAN_CUDA_H_
