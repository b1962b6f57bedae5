#ifndef BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_CUDA_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/collectives/compressed/restore_errors_math.h"

namespace brigade::collectives {

// RestoreErrors on `stream`, without checks of the arguments: what it does (restore_errors.h) once
// it has checked them. There are elements; the pointers are device memory.
cudaError_t LaunchRestoreErrors(const ErrorExchange& exchange, const float* saved, float* error,
                                int64_t size, cudaStream_t stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_CUDA_H_
