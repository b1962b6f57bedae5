// The formulas of Ulysses and of the ring for the GPU.

#include "brigade/nn/rows_cuda.cuh"
#include "brigade/parallel/context/columns_math.h"
#include "brigade/parallel/context/head_exchange_math.h"
#include "brigade/precision/float16.h"

namespace brigade::nn {

template cudaError_t LaunchRows(const parallel::MovePieces<float>&, int64_t, cudaStream_t);
template cudaError_t LaunchRows(const parallel::MovePieces<double>&, int64_t, cudaStream_t);
template cudaError_t LaunchRows(const parallel::MovePieces<precision::Half>&, int64_t,
                                cudaStream_t);
template cudaError_t LaunchRows(const parallel::MovePieces<precision::BFloat16>&, int64_t,
                                cudaStream_t);

template cudaError_t LaunchRows(const parallel::MoveColumns<float, float>&, int64_t, cudaStream_t);
template cudaError_t LaunchRows(const parallel::MoveColumns<double, double>&, int64_t,
                                cudaStream_t);
template cudaError_t LaunchRows(
    const parallel::MoveColumns<precision::Half, precision::Half>&, int64_t, cudaStream_t);
template cudaError_t LaunchRows(
    const parallel::MoveColumns<precision::BFloat16, precision::BFloat16>&, int64_t, cudaStream_t);
template cudaError_t LaunchRows(const parallel::MoveColumns<float, precision::Half>&, int64_t,
                                cudaStream_t);
template cudaError_t LaunchRows(const parallel::MoveColumns<float, precision::BFloat16>&, int64_t,
                                cudaStream_t);

}  // namespace brigade::nn
