// Directions for columns of zeros, on the GPU: a block each. Nearly always there are none, and the
// columns, a thousandth of their matrices, are read from a cache.

#include "brigade/collectives/compressed/seed_columns_cuda.h"
#include "brigade/collectives/compressed/seed_columns_math.h"
#include "brigade/kernels/launch_kernel.h"

namespace brigade::collectives {
namespace {

constexpr int kThreads = 256;  // untuned

__global__ void __launch_bounds__(kThreads) SeedColumnsKernel(ColumnList columns) {
  __shared__ uint32_t threads_with_values;
  const int64_t column = blockIdx.x;
  const int64_t begin = columns.begins[column], end = columns.begins[column + 1];
  if (threadIdx.x == 0) threads_with_values = 0;
  __syncthreads();
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    if (columns.data[i] != 0) {
      atomicAdd(&threads_with_values, 1u);
      break;
    }
  }
  __syncthreads();
  if (threads_with_values != 0) return;  // the whole block
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    columns.data[i] = ColumnSeed(column, i - begin);
  }
}

}  // namespace

cudaError_t LaunchSeedColumns(const ColumnList& columns, cudaStream_t stream) {
  return kernels::LaunchKernel<SeedColumnsKernel>(static_cast<unsigned>(columns.count), kThreads,
                                                  stream, columns);
}

}  // namespace brigade::collectives
