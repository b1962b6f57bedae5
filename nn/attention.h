#ifndef BRIGADE_NN_ATTENTION_H_
#define BRIGADE_NN_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/blas.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

struct AttentionShape {
  precision::DType dtype;
  int64_t batch;
  int64_t context;
  int64_t heads;
  // The width of all heads together.
  int64_t width;

  int64_t rows() const { return batch * context; }
  int64_t head_width() const { return width / heads; }
  int64_t scores() const { return batch * heads * context * context; }
};

// Causal self-attention of several heads: out = softmax(q k^T / sqrt(head width)) v, each position
// seeing itself and those before it.
//
// Shapes       qkv [rows, 3 * width]: queries, keys, values side by side, each heads * head width;
//              probabilities [batch, heads, context, context]; out [rows, width]; device memory.
// Stream       Enqueued; allocates nothing, never waits.
// Source       Vaswani et al. 2017.
absl::Status Attention(const AttentionShape& shape, const void* qkv, void* probabilities, void* out,
                       Blas& blas, device::Stream& stream);

// dqkv from dout and what the forward pass left; dscores is scratch of the probabilities' shape.
absl::Status AttentionBackward(const AttentionShape& shape, const void* qkv,
                               const void* probabilities, const void* dout, void* dscores,
                               void* dqkv, Blas& blas, device::Stream& stream);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_H_
