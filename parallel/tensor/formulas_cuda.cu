// Every formula of the tensor-parallel layers for the GPU.

#include "brigade/nn/rows_cuda.cuh"
#include "brigade/parallel/tensor/cross_entropy_math.h"

namespace brigade::nn {

#define BRIGADE_ROWS(Formula) \
  template cudaError_t LaunchRows(const Formula&, int64_t rows, cudaStream_t)

#define BRIGADE_INSTANTIATE(T)                \
  BRIGADE_ROWS(parallel::VocabularyParts<T>); \
  BRIGADE_ROWS(parallel::VocabularyCrossEntropyGradient<T>)

BRIGADE_INSTANTIATE(float);
BRIGADE_INSTANTIATE(precision::Half);
BRIGADE_INSTANTIATE(precision::BFloat16);
BRIGADE_INSTANTIATE(double);
BRIGADE_ROWS(parallel::VocabularyLosses<float>);
BRIGADE_ROWS(parallel::VocabularyLosses<double>);

}  // namespace brigade::nn
