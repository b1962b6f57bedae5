#ifndef BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_CUDA_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_CUDA_H_

#include <cuda_runtime_api.h>

#include "brigade/collectives/compressed/seed_columns_math.h"

namespace brigade::collectives {

// SeedColumns on `stream`, without checks of the arguments: what it does (seed_columns.h) once it
// has checked them. There are columns; the pointers are device memory.
cudaError_t LaunchSeedColumns(const ColumnList& columns, cudaStream_t stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_CUDA_H_
