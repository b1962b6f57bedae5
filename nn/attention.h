#ifndef BRIGADE_NN_ATTENTION_H_
#define BRIGADE_NN_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/device.h"
#include "brigade/device/stream.h"
#include "brigade/nn/segments.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

struct AttentionShape {
  precision::DType dtype;
  int64_t batch;
  int64_t context;
  int64_t heads;
  // The width of all heads together.
  int64_t width;
  // The documents that share a text; each position sees its own alone.
  Segments segments = {};

  int64_t rows() const { return batch * context; }
  int64_t head_width() const { return width / heads; }
  // Of log_sum_exp.
  int64_t statistics() const { return batch * heads * context; }
};

// Causal self-attention of several heads: out = softmax(q k^T / sqrt(head width)) v, each position
// seeing itself and those before it, of its own segment where there are several.
//
// Shapes       qkv [rows, 3 * width]: queries, keys, values side by side, each heads * head width;
//              out [rows, width]; log_sum_exp [batch, heads, context], float (double for double):
//              the logarithm of the sum of e^score over what a position sees, for the backward
//              pass. Device memory.
// Precision    Sums are in float (double for double). Built by GCC, on processors with AVX512_BF16,
//              bfloat16 is multiplied as it is: probabilities, and in the backward pass the
//              gradients of scores, are rounded to bfloat16 before their products, and subnormal
//              numbers count as 0. On GPUs tensor cores do the same, with Half too, for heads of
//              32, 64, 96 and 128 in arrays that are aligned to 16 bytes; they keep subnormal
//              numbers, and make the constant of the softmax's gradient of the rounded `out`. A NaN
//              reaches what depends on it. By products with 0, one in a key or a value may reach
//              positions before it, and one in a query or in dout the gradients of the same column
//              of keys or values behind it, that are less than 64 away.
// Memory       No matrix of scores: on the CPU, tiles of 64 to 128 positions (32 to 64 of double)
//              in at most 512 KiB of the stack of each thread that computes.
// Aliasing     None.
// Stream       Enqueued; allocates nothing, never waits.
// Determinism  Same bits for any number of threads; others on another instruction set or device.
//              Tiles are counted from the begin of a segment: `out` and log_sum_exp have the bits
//              that the document has alone, wherever it lies, and so have the gradients, but for
//              the CPU's sums of queries' gradients in parts (AttentionWorkspaceBytes).
// Errors       InvalidArgument naming the type or the size: heads are 1 to 256 wide. A batch of 0
//              is nothing to do.
// Source       Dao 2023 (arXiv 2307.08691).
absl::Status Attention(const AttentionShape& shape, const void* qkv, void* out, void* log_sum_exp,
                       device::Stream& stream);

// dqkv from dout and what the forward pass left; `workspace` is device memory of
// AttentionWorkspaceBytes, aligned to float (double for double), whose contents do not matter.
// Otherwise like Attention.
absl::Status AttentionBackward(const AttentionShape& shape, const void* qkv, const void* out,
                               const void* log_sum_exp, const void* dout, void* workspace,
                               void* dqkv, device::Stream& stream);

// With W = 4 bytes (8 for double), and `tiles` of 64 positions (32 for double) of a context:
//
//   batch * heads * context * W, rounded up to 256, for a number of each row of scores; and on the
//   CPU, for the gradient of queries in parts that threads add up one by one,
//   batch * heads * parts * (64 or 32) * tiles * (head width rounded up to 16) * W, where
//   parts = 16 / (batch * heads), at least 1 and at most `tiles`, and 64 for their alignment.
//
// 0 for a batch, a context or heads of 0.
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, device::Device device);

// Of batches of 1 to shape.batch the most: on the CPU a smaller one may have more parts in all.
int64_t MostAttentionWorkspaceBytes(const AttentionShape& shape, device::Device device);

}  // namespace brigade::nn

#endif  // BRIGADE_NN_ATTENTION_H_
