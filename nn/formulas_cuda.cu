// Every formula of the layers for the GPU.

#include "brigade/nn/attention_math.h"
#include "brigade/nn/cached_attention_math.h"
#include "brigade/nn/cross_entropy_math.h"
#include "brigade/nn/dropout_math.h"
#include "brigade/nn/embedding_math.h"
#include "brigade/nn/grouped_heads_math.h"
#include "brigade/nn/norm_math.h"
#include "brigade/nn/pointwise_math.h"
#include "brigade/nn/rotary_math.h"
#include "brigade/nn/rows_cuda.cuh"
#include "brigade/nn/squared_error_math.h"
#include "brigade/nn/swiglu_math.h"

namespace brigade::nn {

#define BRIGADE_ROWS(Formula) \
  template cudaError_t LaunchRows(const Formula&, int64_t rows, cudaStream_t)
#define BRIGADE_COLUMNS(Formula) \
  template cudaError_t LaunchColumns(const Formula&, int64_t outer, int64_t columns, cudaStream_t)

#define BRIGADE_PARTS(Formula)                                                                    \
  template cudaError_t LaunchParts(const Formula&, int64_t outer, int64_t columns, int64_t parts, \
                                   Formula::Sum* partials, cudaStream_t)

#define BRIGADE_INSTANTIATE(T)                 \
  BRIGADE_ROWS(LayerNormRows<T>);              \
  BRIGADE_ROWS(LayerNormBackwardRows<T>);      \
  BRIGADE_PARTS(LayerNormBackwardColumns<T>);  \
  BRIGADE_ROWS(RmsNormRows<T>);                \
  BRIGADE_ROWS(RmsNormBackwardRows<T>);        \
  BRIGADE_PARTS(RmsNormBackwardColumns<T>);    \
  BRIGADE_ROWS(AddBiasRows<T>);                \
  BRIGADE_ROWS(AddBiasGeluRows<T>);            \
  BRIGADE_ROWS(GeluRows<T>);                   \
  BRIGADE_ROWS(GeluBackwardRows<T>);           \
  BRIGADE_ROWS(ReluRows<T>);                   \
  BRIGADE_ROWS(ReluBackwardRows<T>);           \
  BRIGADE_ROWS(SquaredErrorRows<T>);           \
  BRIGADE_ROWS(SquaredErrorBackwardRows<T>);   \
  BRIGADE_PARTS(SumOfRows<T>);                 \
  BRIGADE_ROWS(SwigluRows<T>);                 \
  BRIGADE_ROWS(SwigluBackwardRows<T>);         \
  BRIGADE_ROWS(DropoutRows<T>);                \
  BRIGADE_ROWS(RotaryRows<T>);                 \
  BRIGADE_ROWS(RepeatHeadsRows<T>);            \
  BRIGADE_ROWS(SumHeadsRows<T>);               \
  BRIGADE_ROWS(AppendToCacheRows<T>);          \
  BRIGADE_ROWS(CachedAttentionRows<T>);        \
  BRIGADE_ROWS(AttentionRows<T>);              \
  BRIGADE_ROWS(AttentionDeltaRows<T>);         \
  BRIGADE_ROWS(AttentionBackwardQueryRows<T>); \
  BRIGADE_ROWS(AttentionBackwardKeyRows<T>);   \
  BRIGADE_ROWS(EmbeddingRows<T>);              \
  BRIGADE_PARTS(TokenGradient<T>);             \
  BRIGADE_COLUMNS(PositionGradient<T>);        \
  BRIGADE_ROWS(CrossEntropyRows<T>);           \
  BRIGADE_ROWS(CrossEntropyBackwardRows<T>);   \
  BRIGADE_ROWS(LossPart<T>)

BRIGADE_INSTANTIATE(float);
BRIGADE_INSTANTIATE(precision::Half);
BRIGADE_INSTANTIATE(precision::BFloat16);
BRIGADE_INSTANTIATE(double);
BRIGADE_ROWS(MeanLoss);

// Of 16-bit types, what goes on as float.
#define BRIGADE_INSTANTIATE_FLOAT(T)                                                          \
  template cudaError_t LaunchRows(const AttentionRows<T, float>&, int64_t, cudaStream_t);     \
  template cudaError_t LaunchRows(const AttentionDeltaRows<T, true>&, int64_t, cudaStream_t); \
  template cudaError_t LaunchRows(const AttentionBackwardQueryRows<T, float>&, int64_t,       \
                                  cudaStream_t);                                              \
  template cudaError_t LaunchRows(const AttentionBackwardKeyRows<T, float>&, int64_t, cudaStream_t)

BRIGADE_INSTANTIATE_FLOAT(precision::Half);
BRIGADE_INSTANTIATE_FLOAT(precision::BFloat16);
BRIGADE_ROWS(MergeAttentionRows<float>);
BRIGADE_ROWS(MergeAttentionRows<double>);

}  // namespace brigade::nn
