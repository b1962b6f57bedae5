#ifndef BRIGADE_NN_ATTENTION_CUDA_H_
#define BRIGADE_NN_ATTENTION_CUDA_H_

// Causal self-attention by tiles, which keeps no scores: out = softmax(q k^T / sqrt(head width)) v.
//
// Shapes       qkv, dqkv: [batch * context, 3 * heads * head_width], queries, keys, values side by
//              side; out, dout: [batch * context, heads * head_width]; log_sum_exp, delta: [batch,
//              heads, context] of float. Any context; device memory.
// Precision    T is Half or BFloat16; sums and log_sum_exp (of the scaled scores, natural) in fp32.
//              Probabilities and gradients of scores are rounded to T before they are multiplied;
//              delta is made with the rounded out.
// Aliasing     Nothing may overlap.
// Stream       Enqueued on `stream`; allocates nothing and never waits.
// Determinism  The same bits for every launch; no atomics.
// Errors       cudaErrorNotSupported for a head width without kernels, before anything is enqueued;
//              cudaErrorMisalignedAddress for an array of T that is not aligned to 16 bytes;
//              cudaErrorInvalidConfiguration for more than 2^31 - 1 tiles of all heads.
// Source       Dao 2023 (arXiv 2307.08691).

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/nn/segments.h"

namespace brigade::nn {

// Of arrays of T, in bytes.
inline constexpr int kTiledAttentionAlignment = 16;

struct TiledAttentionShape {
  int64_t batch = 0;
  int64_t context = 0;
  int64_t heads = 0;
  int64_t head_width = 0;
  // Of whole texts, each a tile's own place in its segment: the bits of the segment alone. Blocks
  // below do not look at them.
  Segments segments = {};
};

// Whether there are kernels for heads of this width: 32, 64, 96 and 128.
inline bool HasTiledAttention(int64_t head_width) {
  return head_width == 32 || head_width == 64 || head_width == 96 || head_width == 128;
}

template <typename T>
cudaError_t LaunchTiledAttention(const TiledAttentionShape& shape, const T* qkv, T* out,
                                 float* log_sum_exp, cudaStream_t stream);

// Some queries and some keys of each text. Arrays begin at the first of them; `shape.context` is
// how many positions they have from one text to the next, and log_sum_exp and delta from one head
// to the next.
struct TiledAttentionBlock {
  TiledAttentionShape shape;
  int64_t queries = 0;
  int64_t keys = 0;
  // Whether a query sees the keys up to its own number; else it sees all.
  bool causal = false;
  // Numbers from one position to the next, of queries, and of keys and of values.
  int64_t query_stride = 0;
  int64_t key_stride = 0;
};

// Out: T for what the call above computes, that is all positions, causal; float for any block.
template <typename T, typename Out>
cudaError_t LaunchTiledAttention(const TiledAttentionBlock& block, const T* queries, const T* keys,
                                 const T* values, Out* out, float* log_sum_exp,
                                 cudaStream_t stream);

// The block's part of the gradients, of log_sum_exp and delta of all keys. dqueries [batch *
// context, heads * head_width] are added to if `adds`; dkeys and dvalues are side by side like the
// halves of an array of [batch * context, 2 * heads * head_width].
template <typename T>
cudaError_t LaunchTiledAttentionBackward(const TiledAttentionBlock& block, const T* queries,
                                         const T* keys, const T* values, const float* log_sum_exp,
                                         const float* delta, const T* dout, float* dqueries,
                                         bool adds, float* dkeys, float* dvalues,
                                         cudaStream_t stream);

// dqkv from dout and what the forward pass read and wrote. delta is scratch.
template <typename T>
cudaError_t LaunchTiledAttentionBackward(const TiledAttentionShape& shape, const T* qkv,
                                         const T* out, const float* log_sum_exp, const T* dout,
                                         float* delta, T* dqkv, cudaStream_t stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_CUDA_H_
